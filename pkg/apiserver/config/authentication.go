// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// Authentication configures the issuers of tokens other than the server's own.
type Authentication struct {
	// File is an AuthenticationConfiguration. It is reloaded when it changes.
	File    string
	OIDC    OIDC
	Webhook TokenWebhook
	// flagged is true if a flag that begins with --oidc- was given.
	flagged bool
}

// OIDC is an OpenID Connect issuer that flags configure. If IssuerURL is empty, there is none.
type OIDC struct {
	IssuerURL      string
	ClientID       string
	CAFile         string
	UsernameClaim  string
	UsernamePrefix string
	GroupsClaim    string
	GroupsPrefix   string
	SigningAlgs    []string
	RequiredClaims map[string]string
}

// TokenWebhook is a server that authenticates tokens. If ConfigFile is empty, there is none.
type TokenWebhook struct {
	ConfigFile string
	Version    string // API version of the TokenReview objects that the server sends
	CacheTTL   time.Duration
}

func defaultAuthentication() Authentication {
	return Authentication{
		OIDC:    OIDC{UsernameClaim: "sub", SigningAlgs: []string{"RS256"}},
		Webhook: TokenWebhook{Version: "v1beta1", CacheTTL: 2 * time.Minute},
	}
}

func (a *Authentication) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&a.File, "authentication-config", "",
		"file with an AuthenticationConfiguration, which lists the issuers of accepted JWTs and the paths "+
			"that anonymous requests may use; changed issuers take effect without a restart")
	o := &a.OIDC
	fs.StringVar(&o.IssuerURL, "oidc-issuer-url", "",
		"https URL of an OIDC issuer whose tokens are accepted; if empty, only tokens of the issuers in "+
			"--authentication-config are accepted")
	fs.StringVar(&o.ClientID, "oidc-client-id", "",
		"client ID that OIDC tokens must contain in the claim aud; required with --oidc-issuer-url")
	fs.StringVar(&o.CAFile, "oidc-ca-file", "",
		"file with the CA certificates that verify the server of the OIDC issuer; if empty, the CA "+
			"certificates of the machine are used")
	fs.StringVar(&o.UsernameClaim, "oidc-username-claim", o.UsernameClaim,
		"claim of an OIDC token that contains the name of the user")
	fs.StringVar(&o.UsernamePrefix, "oidc-username-prefix", "",
		"prefix to put before user names from OIDC tokens; if empty, the prefix is the issuer's URL, or "+
			"nothing if the claim is email; - means no prefix")
	fs.StringVar(&o.GroupsClaim, "oidc-groups-claim", "",
		"claim of an OIDC token that contains the groups of the user; if empty, the user gets no groups from "+
			"the token")
	fs.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", "",
		"prefix to put before group names from OIDC tokens; if empty, there is no prefix")
	fs.StringSliceVar(&o.SigningAlgs, "oidc-signing-algs", o.SigningAlgs,
		"signature algorithms that are accepted in OIDC tokens, separated by commas")
	fs.Var(cliflag.NewMapStringStringNoSplit(&o.RequiredClaims), "oidc-required-claim",
		"claim=value that OIDC tokens must have; may be repeated")
	w := &a.Webhook
	fs.StringVar(&w.ConfigFile, "authentication-token-webhook-config-file", "",
		"kubeconfig file with the address of a webhook that authenticates bearer tokens; if empty, no "+
			"webhook is called")
	fs.StringVar(&w.Version, "authentication-token-webhook-version", w.Version,
		"API version of the TokenReview objects that are sent to the token webhook: v1 or v1beta1")
	fs.DurationVar(&w.CacheTTL, "authentication-token-webhook-cache-ttl", w.CacheTTL,
		"how long answers of the token webhook are cached")
}

// note sets flagged if a flag that begins with --oidc- was given.
func (a *Authentication) note(fs *pflag.FlagSet) {
	fs.Visit(func(f *pflag.Flag) { a.flagged = a.flagged || strings.HasPrefix(f.Name, "oidc-") })
}

func (a *Authentication) validate(add func(format string, args ...any)) {
	o := &a.OIDC
	given := a.flagged || o.IssuerURL != "" || o.ClientID != ""
	switch {
	case given && a.File != "":
		add("authentication-config file and oidc-* flags are mutually exclusive")
	case given && (o.IssuerURL == "" || o.ClientID == ""):
		add("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set")
	}
	if v := a.Webhook.Version; a.Webhook.ConfigFile != "" && !slices.Contains([]string{"v1", "v1beta1"}, v) {
		add("unsupported authentication webhook version %q, supported versions are %q, %q", v, "v1", "v1beta1")
	}
}
