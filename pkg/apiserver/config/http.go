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

// maxGoawayChance is the maximum of GoawayChance. With a higher chance, clients would spend too
// much time on opening connections.
const maxGoawayChance = 0.02

// originsHelp is Kubernetes' help text, which is also part of the error for an invalid origin.
const originsHelp = "List of allowed origins for CORS, comma separated. An allowed origin can be a regular " +
	"expression to support subdomain matching. " +
	"If this list is empty CORS will not be enabled. Please ensure each expression matches the entire " +
	"hostname by anchoring to the start with '^' or including the '//' prefix, " +
	"and by anchoring to the end with '$' or including the ':' port separator suffix. Examples of valid " +
	"expressions are '//example\\.com(:|$)' and '^https://example\\.com(:|$)'"

// HTTP configures response headers, and the behaviour at start and shutdown.
type HTTP struct {
	// CORSOrigins are regular expressions. Browsers let pages of matching origins read answers.
	CORSOrigins []string
	// TransportSecurity are the directives of the header Strict-Transport-Security.
	TransportSecurity []string
	// GoawayChance is the probability, from 0 to 1, that the server closes the connection after an
	// answer to an HTTP/2 request.
	GoawayChance float64
	// ExternalHostname is the name of the server in discovery documents, with or without a port. If it
	// is empty, the documents contain the server's address.
	ExternalHostname string
	// LivezGrace is for how long after the start /livez succeeds even if checks fail.
	LivezGrace time.Duration
	// WatchGrace has no effect. At shutdown, watches end as soon as all other requests have ended.
	WatchGrace time.Duration
	// If RetryAfterShutdown is true, new requests during a shutdown get 429 with Retry-After.
	// Otherwise the server closes the listener.
	RetryAfterShutdown bool
}

func (h *HTTP) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&h.CORSOrigins, "cors-allowed-origins", nil, originsHelp)
	fs.StringSliceVar(&h.TransportSecurity, "strict-transport-security-directives", nil,
		"directives of the header Strict-Transport-Security in answers: max-age=SECONDS, includeSubDomains, "+
			"preload, separated by commas; if empty, answers do not have this header")
	fs.Float64Var(&h.GoawayChance, "goaway-chance", 0,
		"probability, at most 0.02, with which the server closes an HTTP/2 connection after a request, so "+
			"that clients connect again and spread over several servers; 0 means never")
	fs.StringVar(&h.ExternalHostname, "external-hostname", "",
		"host name of this server in API discovery and in the discovery document of the service account "+
			"issuer; if empty, the address of this server")
	fs.DurationVar(&h.LivezGrace, "livez-grace-period", 0,
		"time after the server's start in which /livez succeeds although some of its checks fail")
	fs.DurationVar(&h.WatchGrace, "shutdown-watch-termination-grace-period", 0,
		"no effect: watches end as soon as all other requests have ended")
	fs.BoolVar(&h.RetryAfterShutdown, "shutdown-send-retry-after", false,
		"while the server shuts down, answer new requests with status 429 and Retry-After, instead of "+
			"refusing connections")
}

// Origins compiles the regular expressions of CORSOrigins.
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

// validateBrowsers validates TransportSecurity and CORSOrigins, which set headers for browsers.
func (h *HTTP) validateBrowsers(add func(format string, args ...any)) {
	for _, d := range h.TransportSecurity {
		if strings.TrimSpace(d) == "" {
			add("empty value in strict-transport-security-directives")
			continue
		}
		if age := strings.Split(d, "="); d != "includeSubDomains" && d != "preload" &&
			(len(age) != 2 || age[0] != "max-age") {
			add("--strict-transport-security-directives invalid, allowed values: max-age=expireTime, " +
				"includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information")
		}
	}
	for _, o := range h.CORSOrigins {
		if _, err := parseOrigin(o); err != nil {
			add("%w", err)
		}
	}
}
