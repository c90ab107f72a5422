// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authn says who sends a request. Authenticators are asked in order: front proxy
// headers, client certificate, bearer token (static, service account, bootstrap, of configured
// issuers, known to a webhook), and, where it is allowed and nothing was presented, nobody:
// system:anonymous. Credentials that are presented and wrong are an error, never anonymous.
package authn

import (
	"slices"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	requestunion "k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// Config says whom to believe. Nil parts are left out.
type Config struct {
	ClientCA      *CAFile
	ProxyCA       *CAFile // of front proxies; RequestHeader goes with it
	RequestHeader config.RequestHeader
	TokenFile     string
	// Bootstrap lists the bootstrap tokens in kube-system; nil if they are not accepted.
	Bootstrap       corelisters.SecretLister
	ServiceAccounts authenticator.Token
	Issuers         *Issuers // of other tokens
	Webhook         config.TokenWebhook
	Audiences       authenticator.Audiences
	// Anonymous is what requests without credentials may reach.
	Anonymous apiserver.AnonymousAuthConfig
	Clock     clock.Clock
}

// tokenTTL is how long a verified token is believed without another look: what
// revocation may lag behind.
const tokenTTL = 10 * time.Second

// New returns the authenticator of requests.
func New(cfg Config) (authenticator.Request, error) {
	var requests []authenticator.Request
	if cfg.ProxyCA != nil {
		h := cfg.RequestHeader
		requests = append(requests, headerrequest.NewDynamicVerifyOptionsSecure(cfg.ProxyCA.verifyOptions,
			strs(h.AllowedNames), strs(h.UsernameHeaders), strs(h.UIDHeaders), strs(h.GroupHeaders), strs(h.ExtraHeaderPrefixes)))
	}
	if cfg.ClientCA != nil {
		requests = append(requests, newClientCerts(cfg.ClientCA, cfg.Clock))
	}
	tokens, err := newTokens(cfg)
	if err != nil {
		return nil, err
	}
	if tokens != nil {
		requests = append(requests, bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
	}
	known := group.NewAuthenticatedGroupAdder(requestunion.New(requests...))
	if !cfg.Anonymous.Enabled {
		return known, nil
	}
	return requestunion.NewFailOnError(known, anonymous.NewAuthenticator(cfg.Anonymous.Conditions)), nil
}

func newTokens(cfg Config) (authenticator.Token, error) {
	var tokens []authenticator.Token
	if cfg.TokenFile != "" {
		static, err := tokenfile.NewCSV(cfg.TokenFile)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, authenticator.WrapAudienceAgnosticToken(cfg.Audiences, static))
	}
	if cfg.ServiceAccounts != nil {
		tokens = append(tokens, cfg.ServiceAccounts)
	}
	if cfg.Bootstrap != nil {
		tokens = append(tokens, authenticator.WrapAudienceAgnosticToken(cfg.Audiences, &bootstrapTokens{cfg.Bootstrap, cfg.Clock}))
	}
	// After those that need to ask nobody.
	if cfg.Issuers != nil && !cfg.Issuers.None() {
		tokens = append(tokens, cfg.Issuers)
	}
	if cfg.Webhook.ConfigFile != "" {
		hook, err := newTokenWebhook(cfg.Webhook, cfg.Audiences)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, hook)
	}
	if len(tokens) == 0 {
		return nil, nil
	}
	return cache.New(tokenunion.New(tokens...), false, tokenTTL, 0), nil
}

func strs(s []string) requestx509.StringSliceProvider {
	return requestx509.StaticStringSlice(slices.Clone(s))
}
