// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/daemon/zpages"
)

// reviewTimeout is the timeout of a TokenReview.
const reviewTimeout = 10 * time.Second

// reviewRetry returns the delays between attempts to create a TokenReview or SubjectAccessReview.
func reviewRetry() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
}

// newAuthenticator returns the configured authenticator. ca reloads the client CA file; the caller
// must run it. ca is nil if client certificates are not configured.
func newAuthenticator(client kubernetes.Interface, c kubeletconfig.KubeletAuthentication) (
	a authenticator.Request, ca *dynamiccertificates.DynamicFileCAContent, err error) {
	factory := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                &apiserver.AnonymousAuthConfig{Enabled: isTrue(c.Anonymous.Enabled)},
		CacheTTL:                 c.Webhook.CacheTTL.Duration,
		TokenAccessReviewTimeout: reviewTimeout,
		WebhookRetryBackoff:      reviewRetry(),
	}
	if c.X509.ClientCAFile != "" {
		ca, err = dynamiccertificates.NewDynamicCAContentFromFile("client-ca-bundle", c.X509.ClientCAFile)
		if err != nil {
			return nil, nil, fmt.Errorf("client CA: %w", err)
		}
		factory.ClientCertificateCAContentProvider = ca
	}
	if isTrue(c.Webhook.Enabled) {
		factory.TokenAccessReviewClient = client.AuthenticationV1()
	}
	a, _, err = factory.New()
	if err != nil {
		return nil, nil, fmt.Errorf("authentication: %w", err)
	}
	return a, ca, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

// authorizer decides whether a user may perform verb on a subresource of this node.
type authorizer interface {
	allowed(ctx context.Context, u user.Info, verb, subresource string) (bool, error)
}

// alwaysAllow implements the authorization mode AlwaysAllow.
type alwaysAllow struct{}

func (alwaysAllow) allowed(context.Context, user.Info, string, string) (bool, error) {
	return true, nil
}

// maxDecisions is the maximum number of authorization decisions in the cache.
const maxDecisions = 8192

// webhook authorizes users by SubjectAccessReviews at the API server and caches the decisions.
type webhook struct {
	client            kubernetes.Interface
	node              string
	allowTTL, denyTTL time.Duration
	answers           *cache.LRUExpireCache
}

func newAuthorizer(client kubernetes.Interface, node string, c kubeletconfig.KubeletAuthorization,
	clk clock.Clock) (authorizer, error) {
	switch c.Mode {
	case kubeletconfig.KubeletAuthorizationModeAlwaysAllow:
		return alwaysAllow{}, nil
	case kubeletconfig.KubeletAuthorizationModeWebhook:
		return &webhook{
			client: client, node: node,
			allowTTL: c.Webhook.CacheAuthorizedTTL.Duration, denyTTL: c.Webhook.CacheUnauthorizedTTL.Duration,
			answers: cache.NewLRUExpireCacheWithClock(maxDecisions, clk),
		}, nil
	case "":
		return nil, fmt.Errorf("no authorization mode specified")
	}
	return nil, fmt.Errorf("unknown authorization mode %s", c.Mode)
}

func (w *webhook) allowed(ctx context.Context, u user.Info, verb, subresource string) (bool, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(u.GetExtra()))
	for k, v := range u.GetExtra() {
		extra[k] = v
	}
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: w.node,
		},
	}
	key, err := spec.Marshal()
	if err != nil {
		return false, fmt.Errorf("access review: %w", err)
	}
	if answer, ok := w.answers.Get(string(key)); ok {
		return answer.(bool), nil
	}
	review, err := w.ask(ctx, spec)
	if err != nil {
		return false, fmt.Errorf("access review: %w", err)
	}
	allowed := review.Status.Allowed && !review.Status.Denied
	ttl := w.denyTTL
	if allowed {
		ttl = w.allowTTL
	}
	w.answers.Add(string(key), allowed, ttl)
	return allowed, nil
}

// ask creates a SubjectAccessReview. It retries until a request succeeds, ctx ends or all attempts
// have failed.
func (w *webhook) ask(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (
	review *authorizationv1.SubjectAccessReview, err error) {
	waitErr := wait.ExponentialBackoffWithContext(ctx, *reviewRetry(), func(ctx context.Context) (bool, error) {
		review, err = w.client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
			&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		return err == nil, nil
	})
	if err == nil {
		err = waitErr
	}
	return review, err
}

// verbOf returns the verb for the authorization of an HTTP method, such as get for GET.
func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// below reports whether path is root or below it.
func below(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '/')
}

// permissions returns the verb of a request, and the subresources of the node to which it belongs.
// A user who may perform the verb on any one of them may make the request.
func permissions(method, path string) (verb string, subresources []string) {
	verb = verbOf(method)
	for _, root := range []string{"/exec", "/attach", "/portForward", "/run"} {
		if below(path, root) {
			verb = "create"
		}
	}
	switch {
	case below(path, "/stats"):
		return verb, []string{"stats"}
	case below(path, "/metrics"):
		return verb, []string{"metrics"}
	case below(path, "/logs"):
		return verb, []string{"log"}
	case below(path, "/checkpoint"):
		return verb, []string{"checkpoint"}
	case below(path, zpages.Statusz):
		return verb, []string{"statusz"}
	case below(path, zpages.Flagz):
		return verb, []string{"configz"}
	case below(path, "/pods"), below(path, "/runningpods"):
		return verb, []string{"pods", "proxy"}
	case below(path, "/healthz"):
		return verb, []string{"healthz", "proxy"}
	case below(path, "/configz"):
		return verb, []string{"configz", "proxy"}
	case below(path, "/csi"): // not in Kubernetes: a permission only for calls of storage drivers
		return verb, []string{"csi", "proxy"}
	}
	return verb, []string{"proxy"}
}

// authorized returns a handler that calls next for authenticated and authorized requests and
// rejects all others.
func (s *Server) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok, err := s.authn.AuthenticateRequest(r)
		if err != nil {
			s.cfg.Log.Debug("Failed to authenticate a request", "path", r.URL.Path, "err", err)
		}
		if err != nil || !ok {
			writeText(w, http.StatusUnauthorized, "Unauthorized")
			return
		}
		verb, subresources := permissions(r.Method, r.URL.Path)
		for _, sub := range subresources {
			allowed, err := s.authz.allowed(r.Context(), info.User, verb, sub)
			if err != nil {
				s.cfg.Log.Error("Failed to authorize a request", "user", info.User.GetName(), "verb", verb,
					"subresource", sub, "err", err)
				writeText(w, http.StatusInternalServerError,
					fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)",
						info.User.GetName(), verb, sub))
				return
			}
			if allowed {
				next.ServeHTTP(w, r)
				return
			}
		}
		writeText(w, http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n",
			info.User.GetName(), verb, subresources))
	})
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // the client may have disconnected
}
