// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
)

// How long a Guard caches responses of the API server, and how long one call may take.
const (
	tokenTTL      = 10 * time.Second
	decisionTTL   = 10 * time.Second
	reviewTimeout = 10 * time.Second
)

// Guard is a filter for HTTP requests. It accepts a request if the API server can authenticate the
// user and the user may get the request's path.
type Guard struct {
	who authenticator.Request
	may authorizer.UnconditionalAuthorizer
	ca  *dynamiccertificates.DynamicFileCAContent
}

// NewGuard returns a guard that asks the API server to authenticate and authorize requests. If
// clientCAFile is not empty, the guard itself verifies client certificates that this authority
// signed.
func NewGuard(client kubernetes.Interface, clientCAFile string) (*Guard, error) {
	retry := &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
	who := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: true}, CacheTTL: tokenTTL,
		TokenAccessReviewClient: client.AuthenticationV1(), TokenAccessReviewTimeout: reviewTimeout,
		WebhookRetryBackoff: retry,
	}
	g := &Guard{}
	var err error
	if clientCAFile != "" {
		if g.ca, err = dynamiccertificates.NewDynamicCAContentFromFile("client-ca", clientCAFile); err != nil {
			return nil, fmt.Errorf("client CA: %w", err)
		}
		who.ClientCertificateCAContentProvider = g.ca
	}
	if g.who, _, err = who.New(); err != nil {
		return nil, fmt.Errorf("authentication: %w", err)
	}
	may := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), AllowCacheTTL: decisionTTL,
		DenyCacheTTL: decisionTTL, WebhookRetryBackoff: retry,
	}
	if g.may, err = may.New(); err != nil {
		return nil, fmt.Errorf("authorization: %w", err)
	}
	return g, nil
}

// Run reloads the client CA file when it changes, until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	if g.ca != nil {
		g.ca.Run(ctx, 1)
	}
}

// request makes a server ask for client certificates of the authorities that the guard knows. The guard
// verifies the certificate, not the TLS handshake, so that a rejected client gets a response with the
// reason.
func (g *Guard) request(c *tls.Config) {
	c.ClientAuth = tls.RequestClientCert
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		// Some clients choose a certificate by the names of the authorities, which may have changed.
		now := c.Clone()
		if options, ok := g.ca.VerifyOptions(); ok {
			now.ClientCAs = options.Roots
		}
		return now, nil
	}
}

// Wrap returns a handler that passes only accepted requests to h.
func (g *Guard) Wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, ok, err := g.who.AuthenticateRequest(r)
		if err != nil || !ok {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		decision, reason, err := g.may.Authorize(r.Context(), authorizer.AttributesRecord{
			User: who.User, Verb: strings.ToLower(r.Method), Path: r.URL.Path,
		})
		switch {
		case err != nil:
			http.Error(w, "authorization failed", http.StatusInternalServerError)
		case decision != authorizer.DecisionAllow:
			http.Error(w, fmt.Sprintf("Forbidden: user %q cannot %s path %q: %s", who.User.GetName(),
				strings.ToLower(r.Method), r.URL.Path, reason), http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
}
