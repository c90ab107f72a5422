// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"keelson.dev/api/clock"
)

// deadlines is a response writer that records which deadlines a handler sets.
type deadlines struct {
	http.ResponseWriter
	set []string
}

func (d *deadlines) note(what string, t time.Time) error {
	if !t.IsZero() {
		what += " ends"
	}
	d.set = append(d.set, what)
	return nil
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { return d.note("read", t) }
func (d *deadlines) SetWriteDeadline(t time.Time) error { return d.note("write", t) }
func (d *deadlines) Flush()                             {}
func (d *deadlines) CloseNotify() <-chan bool           { return nil }

// wrapping returns a configuration that enables every filter that wraps the ResponseWriter.
func wrapping(decision authorizer.Decision) Config {
	return Config{
		Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{
				User: &user.DefaultInfo{Name: "u", Groups: []string{user.AllAuthenticated}}}, true, nil
		}),
		Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision,
			string, error) {
			return decision, "", nil
		}),
		WriteError:     func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusForbidden) },
		RequestTimeout: time.Minute,
		Fairness:       &Fairness{Controller: unlimited{}, Objects: func(string) (int64, int64, bool) { return 0, 0, false }},
		Audit:          &Audit{Policy: everything{}, Sink: sink{}},
		Spans:          sdktrace.NewTracerProvider(),
		Serializer:     serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion(),
		Clock:          clock.Real(),
		Log:            slog.New(slog.DiscardHandler),
	}
}

// unlimited replaces priority and fairness: it executes each request at once.
type unlimited struct{ flowcontrol.Interface }

func (unlimited) Handle(_ context.Context, _ flowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() flowrequest.WorkEstimate, _ fairqueuing.QueueNoteFn, execute func()) {
	note(&flowcontrolv1.FlowSchema{}, &flowcontrolv1.PriorityLevelConfiguration{}, "")
	_ = estimate()
	execute()
}
func (unlimited) RegisterWatch(*http.Request) flowcontrol.ForgetWatchFunc { return nil }
func (unlimited) GetInterestedWatchCount(*request.RequestInfo) int        { return 0 }
func (unlimited) GetMaxSeats(string) uint64                               { return 1 }

type everything struct{}

func (everything) EvaluatePolicyRule(authorizer.Attributes) audit.RequestAuditConfig {
	return audit.RequestAuditConfig{Level: auditapi.LevelRequestResponse}
}

type sink struct{}

func (sink) ProcessEvents(...*auditapi.Event) bool { return true }

// TestDeadlinesThroughWrappers checks that http.ResponseController in a handler can set deadlines,
// although filters wrap the ResponseWriter. It also checks that the deadlines of long-running
// requests are removed once these are authorized.
func TestDeadlinesThroughWrappers(t *testing.T) {
	for name, tc := range map[string]struct {
		path     string
		decision authorizer.Decision
		want     []string
	}{
		"ordinary": {"/api/v1/pods", authorizer.DecisionAllow, []string{"read ends", "write ends"}},
		"watch": {"/api/v1/pods?watch=true", authorizer.DecisionAllow,
			[]string{"read", "write", "read ends", "write ends"}},
		"log": {"/api/v1/namespaces/a/pods/p/log", authorizer.DecisionAllow,
			[]string{"read", "write", "read ends", "write ends"}},
		"refused watch": {"/api/v1/pods?watch=true", authorizer.DecisionDeny, nil},
	} {
		t.Run(name, func(t *testing.T) {
			api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				control := http.NewResponseController(w)
				if err := errors.Join(control.SetReadDeadline(time.Unix(1, 0)),
					control.SetWriteDeadline(time.Unix(1, 0)), control.Flush()); err != nil {
					t.Error(err)
				}
			})
			w := &deadlines{ResponseWriter: httptest.NewRecorder()}
			Chain(api, wrapping(tc.decision)).ServeHTTP(w,
				httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.path, nil))
			if !slices.Equal(w.set, tc.want) {
				t.Errorf("got %q, want %q", w.set, tc.want)
			}
		})
	}
}

// TestEndOfBody checks that reads of a body fail at the request's deadline, except for a request to
// upgrade the connection.
func TestEndOfBody(t *testing.T) {
	for name, tc := range map[string]struct {
		upgrade string
		body    io.Reader
		want    []string
	}{
		"body":    {"", strings.NewReader("{}"), []string{"read ends"}},
		"no body": {"", nil, nil},
		"upgrade": {"SPDY/3.1", strings.NewReader("{}"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			api := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/namespaces/a/pods?timeout=1ms", tc.body)
			if tc.upgrade != "" {
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", tc.upgrade)
			}
			w := &deadlines{ResponseWriter: httptest.NewRecorder()}
			Chain(api, wrapping(authorizer.DecisionAllow)).ServeHTTP(w, r)
			if !slices.Equal(w.set, tc.want) {
				t.Errorf("got %q, want %q", w.set, tc.want)
			}
		})
	}
}
