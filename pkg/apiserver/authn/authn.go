// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authn authenticates requests. It tries, in order: headers of front proxies, client
// certificates, and bearer tokens (static, service account, bootstrap, of configured issuers,
// webhook). A request without credentials gets the user system:anonymous if that is allowed. A
// request with invalid credentials is rejected.
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

// Config configures the authenticators. An authenticator whose field is nil or empty is omitted.
type Config struct {
	ClientCA      *CAFile
	ProxyCA       *CAFile // CA of front proxies; used with RequestHeader
	RequestHeader config.RequestHeader
	TokenFile     string
	// Bootstrap lists the bootstrap tokens, which are secrets in kube-system. It is nil if bootstrap
	// tokens are not accepted.
	Bootstrap       corelisters.SecretLister
	ServiceAccounts authenticator.Token
	Issuers         *Issuers // issuers of JWTs in addition to this server
	Webhook         config.TokenWebhook
	Audiences       authenticator.Audiences
	// Anonymous configures which paths accept requests without credentials.
	Anonymous apiserver.AnonymousAuthConfig
	Clock     clock.Clock
}

// tokenTTL is how long the result of authenticating a token is cached. A revoked token may still be
// accepted for that long.
const tokenTTL = 10 * time.Second

// New returns the authenticator of requests.
func New(cfg Config) (authenticator.Request, error) {
	var requests []authenticator.Request
	if cfg.ProxyCA != nil {
		h := cfg.RequestHeader
		requests = append(requests, headerrequest.NewDynamicVerifyOptionsSecure(cfg.ProxyCA.verifyOptions,
			strs(h.AllowedNames), strs(h.UsernameHeaders), strs(h.UIDHeaders), strs(h.GroupHeaders),
			strs(h.ExtraHeaderPrefixes)))
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
		tokens = append(tokens, authenticator.WrapAudienceAgnosticToken(cfg.Audiences,
			&bootstrapTokens{cfg.Bootstrap, cfg.Clock}))
	}
	// These issuers come after the authenticators that need no request to another server.
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
