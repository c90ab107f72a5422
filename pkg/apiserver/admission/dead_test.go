// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/admission/webhookhealth"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// as returns a client that acts as the user with the given name and groups. The user has all rights.
func as(t *testing.T, s *testserver.Server, warned rest.WarningHandler, name string,
	groups ...string) kubernetes.Interface {
	t.Helper()
	cfg := s.UserConfig(t, name, append(groups, "system:masters")...)
	cfg.WarningHandler = warned
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// health returns the health of all webhooks, by name, as /debug/webhooks of the server reports it.
func health(ctx context.Context, t *testing.T, s *testserver.Server) map[string]webhookhealth.Webhook {
	t.Helper()
	doc, err := s.Client.CoreV1().RESTClient().Get().AbsPath(webhookhealth.Path).DoRaw(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var shown webhookhealth.Document
	if err := json.Unmarshal(doc, &shown); err != nil {
		t.Fatal(err)
	}
	out := map[string]webhookhealth.Webhook{}
	for _, w := range shown.Webhooks {
		out[w.Name] = w
	}
	return out
}

// dying has webhooks that fail in different ways. want is part of the error that clients get.
var dying = map[string]struct {
	serve http.HandlerFunc // nil if the webhook refuses connections
	want  string
}{
	"refusing": {nil, "connect: connection refused"},
	"hanging": {func(_ http.ResponseWriter, r *http.Request) {
		// An HTTP server detects that the client has closed the connection only after it has read the
		// body.
		_, _ = bytes.NewBuffer(nil).ReadFrom(r.Body)
		<-r.Context().Done()
	}, "context deadline exceeded"},
	"lying": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>welcome</html>") },
		"couldn't get version/kind; json parse error"},
	"another": {func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"1","allowed":true}}`)
	}, `received invalid webhook response: expected response.uid=`},
	"failing": {func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "out of order", http.StatusBadGateway)
	}, "out of order"},
	"endless": {func(w http.ResponseWriter, _ *http.Request) {
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}, "answer is longer than"},
}

// TestDeadWebhooks checks that if a webhook fails in any of these ways, writes that keep nodes
// alive are admitted without it, and that all other requests are rejected.
func TestDeadWebhooks(t *testing.T) {
	s, warned := testserver.Start(t, testserver.Options{}), &warnings{}
	node := as(t, s, warned, "system:node:a", "system:nodes")
	if _, err := s.Client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list := []admissionregistrationv1.ValidatingWebhook{dead("absent", admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: "hooks", Name: "absent"},
	}), dead("bundle", admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: "hooks", Name: "bundle"}, CABundle: []byte("\n"),
	})}
	for name, how := range dying {
		server := httptest.NewTLSServer(how.serve)
		t.Cleanup(server.Close)
		url := server.URL
		if how.serve == nil {
			url = "https://127.0.0.1:1" // no server of the test listens on port 1
		}
		webhook := dead(name, admissionregistrationv1.WebhookClientConfig{
			URL:      ptr.To(url + "/" + name),
			CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		})
		if name == "hanging" {
			webhook.TimeoutSeconds = ptr.To(int32(1))
		}
		list = append(list, webhook)
	}
	install(t, s, list, nil)
	for i := range list {
		name := list[i].Name
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := dying[name[:strings.Index(name, ".")]].want
			inside := want == "" // the webhook is a service in namespace hooks; the switch below sets want
			switch name {
			case "absent.example.com":
				want = `service "absent" not found`
			case "bundle.example.com":
				want = "unable to load root certificates: unable to parse bytes as PEM block"
			}
			beat := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"case": name}}}
			eventually(t, "a heartbeat passes", func(ctx context.Context) bool {
				_, err := node.CoordinationV1().Leases("kube-node-lease").Create(ctx, beat,
					metav1.CreateOptions{DryRun: []string{"All"}})
				if err != nil && !strings.Contains(err.Error(), `failed calling webhook "`+name+`"`) {
					t.Fatal(err)
				}
				h := health(ctx, t, s)[name] // before the server has loaded the webhook, writes are admitted too
				return err == nil && h.PassedOver > 0 && h.State != webhookhealth.Closed
			})
			_, err := try(t.Context(), s, configMap("a", map[string]string{"case": name}))
			if err == nil || !strings.HasPrefix(err.Error(),
				`Internal error occurred: failed calling webhook "`+name+`": `) || !strings.Contains(err.Error(), want) {
				t.Errorf("a user who is no component gets %v, want an error with %q", err, want)
			}
			h := health(t.Context(), t, s)[name]
			if h.State == webhookhealth.Closed || h.PassedOver == 0 || h.ConsecutiveFailures < 3 ||
				h.LastReason == "" || h.FailurePolicy != "Fail" || h.Slow < h.Median {
				t.Errorf("shown as %+v", h)
			}
			_, err = s.Client.CoreV1().ConfigMaps("hooks").Create(t.Context(),
				configMap("a", map[string]string{"case": name}), metav1.CreateOptions{DryRun: []string{"All"}})
			if (err == nil) != inside {
				t.Errorf("in the webhook's own namespace: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		warned.mu.Lock()
		defer warned.mu.Unlock()
		if len(warned.list) == 0 || !strings.Contains(warned.list[0], "passed over") {
			t.Errorf("no warning that a webhook was skipped: %q", warned.list)
		}
	})
}

// dead returns a webhook at the given address. It is called for objects whose label "case" is the
// name of the webhook.
func dead(name string, at admissionregistrationv1.WebhookClientConfig) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: name + ".example.com", ClientConfig: at, Rules: rules("*/*", admissionregistrationv1.OperationAll),
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"case": name + ".example.com"}},
		TimeoutSeconds: ptr.To(int32(30)), SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}
}

// TestWebhookRecovers checks that a failing webhook is probed, and is called for all requests again
// once it has answered.
func TestWebhookRecovers(t *testing.T) {
	s, h := testserver.Start(t, testserver.Options{}), newHooks(t)
	var well atomic.Bool
	h.on("sick", func(r admissionv1.AdmissionRequest) admissionv1.AdmissionResponse {
		if !well.Load() {
			panic(http.ErrAbortHandler)
		}
		return deny("I am back")(r)
	})
	w := validating(h, "sick", "leases", admissionregistrationv1.Create)
	install(t, s, []admissionregistrationv1.ValidatingWebhook{w}, nil)
	node := as(t, s, &warnings{}, "system:node:a", "system:nodes")
	beat := func(ctx context.Context) error {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		_, err := node.CoordinationV1().Leases("kube-node-lease").Create(ctx, lease,
			metav1.CreateOptions{DryRun: []string{"All"}})
		return err
	}
	eventually(t, "a heartbeat passes", func(ctx context.Context) bool {
		return beat(ctx) == nil && health(ctx, t, s)[w.Name].PassedOver > 0
	})
	well.Store(true)
	eventually(t, "the webhook is asked again", func(ctx context.Context) bool {
		err := beat(ctx)
		return err != nil && strings.Contains(err.Error(), "I am back")
	})
	if got := health(t.Context(), t, s)[w.Name]; got.State != webhookhealth.Closed || got.ConsecutiveFailures != 0 {
		t.Errorf("shown as %+v", got)
	}
	metrics, err := s.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := `keelson_admission_webhook_circuit_open{url="` + h.URL +
		`/sick"} 0`; !strings.Contains(string(metrics), want) {
		t.Errorf("no %s", want)
	}
}
