// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// maxGoawayChance keeps clients from being busy with connections alone.
const maxGoawayChance = 0.02

// originsHelp is Kubernetes' help, which is part of what it says of an origin that is none.
const originsHelp = "List of allowed origins for CORS, comma separated. An allowed origin can be a regular expression to support subdomain matching. " +
	"If this list is empty CORS will not be enabled. Please ensure each expression matches the entire hostname by anchoring to the start with '^' or including the '//' prefix, " +
	"and by anchoring to the end with '$' or including the ':' port separator suffix. Examples of valid expressions are '//example\\.com(:|$)' and '^https://example\\.com(:|$)'"

// HTTP says what clients and load balancers are told beside the answers.
type HTTP struct {
	// CORSOrigins are expressions for origins whose pages may read answers.
	CORSOrigins []string
	// TransportSecurity are the directives of Strict-Transport-Security.
	TransportSecurity []string
	// GoawayChance is the share of HTTP/2 requests that end their connection.
	GoawayChance float64
	// ExternalHostname is the server's name in documents, with or without a port;
	// empty: its address.
	ExternalHostname string
	// LivezGrace is how long after the start /livez holds whatever is amiss.
	LivezGrace time.Duration
	// WatchGrace is how long watches may go on when the server drains. They end at once.
	WatchGrace time.Duration
	// RetryAfterShutdown has requests that come while the server drains be told to
	// try again instead of being refused.
	RetryAfterShutdown bool
}

func (h *HTTP) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&h.CORSOrigins, "cors-allowed-origins", nil, originsHelp)
	fs.StringSliceVar(&h.TransportSecurity, "strict-transport-security-directives", nil, "what browsers are told in Strict-Transport-Security: max-age=expireTime, includeSubDomains, preload; empty: nothing")
	fs.Float64Var(&h.GoawayChance, "goaway-chance", 0, "share of HTTP/2 requests after which a client has to make another connection, so that clients spread over several servers; at most 0.02; 0: none")
	fs.StringVar(&h.ExternalHostname, "external-hostname", "", "name of this server in discovery and in the document of its issuer; empty: its address")
	fs.DurationVar(&h.LivezGrace, "livez-grace-period", 0, "how long after the start /livez holds whatever is amiss")
	fs.DurationVar(&h.WatchGrace, "shutdown-watch-termination-grace-period", 0, "longest time that watches take to end when the server drains; without effect: they end at once when all other requests have")
	fs.BoolVar(&h.RetryAfterShutdown, "shutdown-send-retry-after", false, "answer requests that come while the server drains by 429, to be tried again")
}

// Origins are the expressions of CORSOrigins.
func (h *HTTP) Origins() ([]*regexp.Regexp, error) {
	var out []*regexp.Regexp
	for _, o := range h.CORSOrigins {
		re, err := parseOrigin(o)
		if err != nil {
			return nil, err
		}
		out = append(out, re)
	}
	return out, nil
}

func parseOrigin(o string) (*regexp.Regexp, error) {
	if o == "" {
		return nil, errors.New("empty value in --cors-allowed-origins, help: " + originsHelp)
	}
	re, err := regexp.Compile(o)
	begins, ends := strings.Contains(o, "^") || strings.Contains(o, "//"), strings.ContainsAny(o, "$:")
	if err == nil && !(begins && ends) {
		err = errors.New("regular expression does not pin to start/end of host in the origin header")
	}
	if err != nil {
		return nil, fmt.Errorf("--cors-allowed-origins has an invalid regular expression: %w, help: %s", err, originsHelp)
	}
	return re, nil
}

// validateBrowsers looks at what the pages of browsers are told.
func (h *HTTP) validateBrowsers(add func(format string, args ...any)) {
	for _, d := range h.TransportSecurity {
		if strings.TrimSpace(d) == "" {
			add("empty value in strict-transport-security-directives")
			continue
		}
		if age := strings.Split(d, "="); d != "includeSubDomains" && d != "preload" && (len(age) != 2 || age[0] != "max-age") {
			add("--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information")
		}
	}
	for _, o := range h.CORSOrigins {
		if _, err := parseOrigin(o); err != nil {
			add("%w", err)
		}
	}
}
