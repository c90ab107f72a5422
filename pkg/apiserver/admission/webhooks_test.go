// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// hooks is a server that acts as several webhooks. Each path is one webhook.
type hooks struct {
	*httptest.Server
	mu    sync.Mutex
	seen  map[string][]admissionv1.AdmissionRequest
	reply map[string]func(admissionv1.AdmissionRequest) admissionv1.AdmissionResponse
}

func newHooks(t *testing.T) *hooks {
	h := &hooks{seen: map[string][]admissionv1.AdmissionRequest{},
		reply: map[string]func(admissionv1.AdmissionRequest) admissionv1.AdmissionResponse{}}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.Close)
	return h
}

func (h *hooks) serve(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "bad review", http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	name := strings.Trim(r.URL.Path, "/")
	h.seen[name] = append(h.seen[name], *review.Request)
	reply := h.reply[name]
	h.mu.Unlock()
	if reply == nil {
		http.NotFound(w, r)
		return
	}
	answer := reply(*review.Request)
	answer.UID = review.Request.UID
	review.Request, review.Response = nil, &answer
	if err := json.NewEncoder(w).Encode(review); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// on sets the function that answers calls of the webhook at path.
func (h *hooks) on(path string, reply func(admissionv1.AdmissionRequest) admissionv1.AdmissionResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reply[path] = reply
}

// take returns the requests that the webhook at path has received since the last call of this
// method.
func (h *hooks) take(path string) []admissionv1.AdmissionRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.seen[path]
	h.seen[path] = nil
	return seen
}

// client returns the configuration by which an API server calls the webhook at path.
func (h *hooks) client(path string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{
		URL:      ptr.To(h.URL + "/" + path),
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}),
	}
}

func allow(admissionv1.AdmissionRequest) admissionv1.AdmissionResponse {
	return admissionv1.AdmissionResponse{Allowed: true}
}

func deny(message string) func(admissionv1.AdmissionRequest) admissionv1.AdmissionResponse {
	return func(admissionv1.AdmissionRequest) admissionv1.AdmissionResponse {
		return admissionv1.AdmissionResponse{Result: &metav1.Status{Message: message}}
	}
}

func patch(data string) func(admissionv1.AdmissionRequest) admissionv1.AdmissionResponse {
	return func(admissionv1.AdmissionRequest) admissionv1.AdmissionResponse {
		kind := admissionv1.PatchTypeJSONPatch
		return admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(data), PatchType: &kind}
	}
}

func rules(resource string,
	operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"},
			Resources: []string{resource}},
	}}
}

func validating(h *hooks, path, resource string,
	operations ...admissionregistrationv1.OperationType) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: path + ".example.com", ClientConfig: h.client(path), Rules: rules(resource, operations...),
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To(int32(30)),
	}
}

func mutating(h *hooks, path, resource string) admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name: path + ".example.com", ClientConfig: h.client(path), Rules: rules(resource, admissionregistrationv1.Create),
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To(int32(30)),
	}
}

// install creates configurations for the webhooks in v and m. The server begins to call them with a
// delay.
func install(t *testing.T, s *testserver.Server, v []admissionregistrationv1.ValidatingWebhook,
	m []admissionregistrationv1.MutatingWebhook) {
	t.Helper()
	api, meta := s.Client.AdmissionregistrationV1(), metav1.ObjectMeta{Name: "test"}
	if len(v) > 0 {
		if _, err := api.ValidatingWebhookConfigurations().Create(t.Context(),
			&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: v},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(m) > 0 {
		if _, err := api.MutatingWebhookConfigurations().Create(t.Context(),
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: m},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func eventually(t *testing.T, what string, done func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 3*time.Minute, true,
		func(ctx context.Context) (bool, error) { return done(ctx), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func configMap(name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"k": "v"}}
}

func try(ctx context.Context, s *testserver.Server, cm *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	return s.Client.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{DryRun: []string{"All"}})
}

func TestValidatingWebhooks(t *testing.T) {
	s, h := testserver.Start(t, testserver.Options{}), newHooks(t)
	h.on("deny", deny("no way"))
	h.on("slow", func(r admissionv1.AdmissionRequest) admissionv1.AdmissionResponse {
		<-t.Context().Done() // wait until the test ends
		return allow(r)
	})
	select1 := func(w admissionregistrationv1.ValidatingWebhook, value string) admissionregistrationv1.ValidatingWebhook {
		w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"case": value}}
		return w
	}
	broken := select1(validating(h, "absent", "configmaps", admissionregistrationv1.Create), "ignored")
	broken.Name = "ignored.example.com"
	broken.FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
	conditional := select1(validating(h, "deny", "configmaps", admissionregistrationv1.Create), "conditional")
	conditional.Name = "conditional.example.com"
	conditional.MatchConditions = []admissionregistrationv1.MatchCondition{
		{Name: "named", Expression: "object.metadata.name == 'refused' && request.dryRun"}}
	elsewhere := select1(validating(h, "deny", "configmaps", admissionregistrationv1.Create), "elsewhere")
	elsewhere.Name = "elsewhere.example.com"
	elsewhere.NamespaceSelector = &metav1.LabelSelector{
		MatchLabels: map[string]string{"kubernetes.io/metadata.name": "kube-system"}}
	slow := select1(validating(h, "slow", "configmaps", admissionregistrationv1.Create), "slow")
	slow.TimeoutSeconds = ptr.To(int32(1))
	install(t, s, []admissionregistrationv1.ValidatingWebhook{
		broken, conditional, elsewhere, slow,
		select1(validating(h, "absent", "configmaps", admissionregistrationv1.Create), "failing"),
		select1(validating(h, "deny", "configmaps", admissionregistrationv1.Create), "denied"),
	}, nil)
	eventually(t, "webhooks are asked", func(ctx context.Context) bool {
		_, err := try(ctx, s, configMap("a", map[string]string{"case": "denied"}))
		return err != nil
	})
	for name, tc := range map[string]struct {
		object *corev1.ConfigMap
		want   string
		code   int32
	}{
		"denied": {configMap("a", map[string]string{"case": "denied"}),
			`admission webhook "deny.example.com" denied the request: no way`, http.StatusBadRequest},
		"not selected": {configMap("a", nil), "", 0},
		"condition does hold": {configMap("refused", map[string]string{"case": "conditional"}),
			`admission webhook "conditional.example.com" denied the request: no way`, http.StatusBadRequest},
		"condition does not":   {configMap("a", map[string]string{"case": "conditional"}), "", 0},
		"of another namespace": {configMap("a", map[string]string{"case": "elsewhere"}), "", 0},
		"failure is ignored":   {configMap("a", map[string]string{"case": "ignored"}), "", 0},
		"failure is refusal": {configMap("a", map[string]string{"case": "failing"}),
			`Internal error occurred: failed calling webhook "absent.example.com": failed to call webhook: ` +
				`the server could not find the requested resource`, http.StatusInternalServerError},
		"no answer within 1 s": {configMap("a", map[string]string{"case": "slow"}),
			`Internal error occurred: failed calling webhook "slow.example.com": failed to call webhook: Post "` +
				h.URL + `/slow?timeout=1s": context deadline exceeded`, http.StatusInternalServerError},
		"another kind of object": {nil, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			if tc.object == nil {
				_, err = s.Client.CoreV1().Secrets("default").Create(t.Context(),
					&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a",
						Labels: map[string]string{"case": "denied"}}}, metav1.CreateOptions{})
			} else {
				_, err = try(t.Context(), s, tc.object)
			}
			switch status, _ := err.(apierrors.APIStatus); {
			case (err == nil) != (tc.want == ""), err != nil && err.Error() != tc.want:
				t.Errorf("got  %v\nwant %s", err, tc.want)
			case err != nil && status.Status().Code != tc.code:
				t.Errorf("code %d, want %d", status.Status().Code, tc.code)
			}
		})
	}
}

// TestMetrics creates an object, which a webhook rejects. It checks that the metrics for phases,
// plugins and webhooks count this.
func TestMetrics(t *testing.T) {
	s, h := testserver.Start(t, testserver.Options{}), newHooks(t)
	h.on("measured", deny("no way"))
	install(t, s, []admissionregistrationv1.ValidatingWebhook{
		validating(h, "measured", "configmaps", admissionregistrationv1.Create)}, nil)
	eventually(t, "webhooks are asked", func(ctx context.Context) bool {
		_, err := try(ctx, s, configMap("a", nil))
		return err != nil
	})
	metrics, err := s.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`apiserver_admission_step_admission_duration_seconds_count{operation="CREATE",rejected="true",type="validate"}`,
		`apiserver_admission_controller_admission_duration_seconds_count{name="ServiceAccount",operation="CREATE",rejected="false",type="admit"}`,
		`apiserver_admission_webhook_admission_duration_seconds_count{name="measured.example.com",operation="CREATE",rejected="true",type="validating"}`,
		`apiserver_admission_webhook_rejection_count{error_type="no_error",name="measured.example.com",operation="CREATE",rejection_code="400",type="validating"}`,
	} {
		if !strings.Contains(string(metrics), want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestMutatingWebhooks(t *testing.T) {
	s, h := testserver.Start(t, testserver.Options{}), newHooks(t)
	add := func(key, value string) string {
		return `[{"op":"add","path":"/data/` + key + `","value":"` + value + `"}]`
	}
	h.on("first", func(r admissionv1.AdmissionRequest) admissionv1.AdmissionResponse {
		if strings.Contains(string(r.Object.Raw), `"second":`) {
			return patch(add("first-again", "x"))(r)
		}
		return patch(add("first", "x"))(r)
	})
	h.on("second", patch(add("second", "x")))
	h.on("check", allow)
	again := mutating(h, "first", "configmaps")
	again.ReinvocationPolicy = ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy)
	install(t, s, []admissionregistrationv1.ValidatingWebhook{
		validating(h, "check", "configmaps", admissionregistrationv1.Create)},
		[]admissionregistrationv1.MutatingWebhook{again, mutating(h, "second", "configmaps")})
	var got *corev1.ConfigMap
	eventually(t, "webhooks are asked", func(ctx context.Context) bool {
		h.take("check")
		var err error
		got, err = try(ctx, s, configMap("a", nil))
		return err == nil && len(got.Data) > 1 && len(h.take("check")) > 0
	})
	if want := map[string]string{"k": "v", "first": "x", "second": "x", "first-again": "x"}; !reflect.DeepEqual(
		got.Data, want) {
		t.Errorf("mutated to %v, want %v", got.Data, want)
	}
	h.take("check")
	if _, err := try(t.Context(), s, configMap("b", nil)); err != nil {
		t.Fatal(err)
	}
	seen := h.take("check")
	if len(seen) != 1 || !strings.Contains(string(seen[0].Object.Raw), `"first-again":"x"`) ||
		seen[0].DryRun == nil || !*seen[0].DryRun ||
		seen[0].Kind.Kind != "ConfigMap" || seen[0].Operation != admissionv1.Create || seen[0].UserInfo.Username != "admin" {
		t.Errorf("validating webhook saw %+v", seen)
	}
}

// TestMutatedCustomResource changes a custom resource by a webhook. Afterwards, defaults must be
// set again, and unknown fields must be pruned once validation has passed.
func TestMutatedCustomResource(t *testing.T) {
	s, h := testserver.Start(t, testserver.Options{}), newHooks(t)
	h.on("things", patch(`[{"op":"add","path":"/data","value":{"known":"x","unknown":"y"}}]`))
	definitions := apiextensionsclient.NewForConfigOrDie(s.Config).ApiextensionsV1().CustomResourceDefinitions()
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	late := text
	late.Default = &apiextensionsv1.JSON{Raw: []byte(`"z"`)}
	if _, err := definitions.Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object",
						Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"data": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"known": text, "late": late}},
						}},
				}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.on("validate", allow)
	install(t, s, []admissionregistrationv1.ValidatingWebhook{
		validating(h, "validate", "things", admissionregistrationv1.Create)},
		[]admissionregistrationv1.MutatingWebhook{mutating(h, "things", "things")})
	things := dynamic.NewForConfigOrDie(s.Config).Resource(schema.GroupVersionResource{Group: "example.com",
		Version: "v1", Resource: "things"})
	var got *unstructured.Unstructured
	eventually(t, "things are mutated", func(ctx context.Context) bool {
		var err error
		got, err = things.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"},
		}}, metav1.CreateOptions{DryRun: []string{"All"}})
		seen := h.take("validate")
		return err == nil && got.Object["data"] != nil && len(seen) == 1 &&
			strings.Contains(string(seen[0].Object.Raw), `"unknown":"y"`)
	})
	if want := map[string]any{"known": "x", "late": "z"}; !reflect.DeepEqual(got.Object["data"], want) {
		t.Errorf("got %v, want %v", got.Object["data"], want)
	}
}

// TestMutatedScale checks that webhooks receive the Scale in requests for the scale subresource,
// and can change it.
func TestMutatedScale(t *testing.T) {
	s, h := testserver.Start(t, testserver.Options{}), newHooks(t)
	h.on("scale", patch(`[{"op":"replace","path":"/spec/replicas","value":7}]`))
	w := mutating(h, "scale", "*/scale")
	w.Rules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
	install(t, s, nil, []admissionregistrationv1.MutatingWebhook{w})
	api := s.Client.AppsV1().Deployments("default")
	if _, err := api.Create(t.Context(), deployment("a", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "scales are mutated", func(ctx context.Context) bool {
		got, err := api.UpdateScale(ctx, "a",
			&autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"},
				Spec: autoscalingv1.ScaleSpec{Replicas: 2}}, metav1.UpdateOptions{})
		return err == nil && got.Spec.Replicas == 7
	})
	seen := h.take("scale")
	last := seen[len(seen)-1]
	if last.Kind.Kind != "Scale" || last.Resource.Resource != "deployments" || last.SubResource != "scale" ||
		!strings.Contains(string(last.Object.Raw), `"spec":{"replicas":2}`) {
		t.Errorf("the webhook saw %+v %s", last, last.Object.Raw)
	}
}

// warnings records the warnings that a client receives.
type warnings struct {
	mu   sync.Mutex
	list []string
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, text)
}

// TestMutatingWebhookOfDelete checks that for a delete, a webhook receives the object as oldObject,
// and that it is not called if the object does not exist.
func TestMutatingWebhookOfDelete(t *testing.T) {
	s, h := testserver.Start(t, testserver.Options{}), newHooks(t)
	h.on("keep", func(r admissionv1.AdmissionRequest) admissionv1.AdmissionResponse {
		return admissionv1.AdmissionResponse{Allowed: !strings.Contains(string(r.OldObject.Raw), `"keep":"yes"`)}
	})
	hook := mutating(h, "keep", "configmaps")
	hook.Rules = rules("configmaps", admissionregistrationv1.Delete)
	install(t, s, nil, []admissionregistrationv1.MutatingWebhook{hook})
	api := s.Client.CoreV1().ConfigMaps("default")
	for name, keep := range map[string]string{"kept": "yes", "a": "no"} {
		if _, err := api.Create(t.Context(), configMap(name, map[string]string{"keep": keep}),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const want = `admission webhook "keep.example.com" denied the request without explanation`
	eventually(t, "webhooks are asked", func(ctx context.Context) bool {
		err := api.Delete(ctx, "kept", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && err.Error() == want
	})
	h.take("keep")
	if err := api.Delete(t.Context(), "none", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) ||
		len(h.take("keep")) != 0 {
		t.Errorf("deleting nothing: %v", err)
	}
	if err := api.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := api.Delete(t.Context(), "kept", metav1.DeleteOptions{}); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := api.DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: "metadata.name=kept"}); err == nil {
		t.Error("a collection was deleted with what is to be kept")
	}
}

func TestWebhooksOfEveryOperation(t *testing.T) {
	s, h := testserver.Start(t, testserver.Options{}), newHooks(t)
	h.on("all", func(r admissionv1.AdmissionRequest) admissionv1.AdmissionResponse {
		return admissionv1.AdmissionResponse{Allowed: r.SubResource != "attach",
			Warnings: []string{"seen " + string(r.Operation)},
			Result:   &metav1.Status{Message: "attaching to pods is not allowed", Code: 418}}
	})
	install(t, s, []admissionregistrationv1.ValidatingWebhook{
		validating(h, "all", "*/*", admissionregistrationv1.OperationAll)}, nil)
	warned := &warnings{}
	cfg := rest.CopyConfig(s.Config)
	cfg.WarningHandler = warned
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	api := client.CoreV1().ConfigMaps("default")
	eventually(t, "webhooks are asked", func(ctx context.Context) bool {
		_, err := try(ctx, s, configMap("a", nil))
		return err == nil && len(h.take("all")) > 0
	})
	h.take("all")
	if _, err := api.Create(t.Context(), configMap("a", map[string]string{"n": "1"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Update(t.Context(), configMap("a", map[string]string{"n": "2"}), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"seen CREATE", "seen UPDATE", "seen DELETE"}; !slices.Equal(warned.list, want) {
		t.Errorf("warned of %q, want %q", warned.list, want)
	}
	var ours []admissionv1.AdmissionRequest
	for _, r := range h.take("all") {
		if r.Resource.Resource == "configmaps" && r.Name == "a" {
			ours = append(ours, r)
		}
	}
	if len(ours) != 3 {
		t.Fatalf("%d requests", len(ours))
	}
	has := func(raw []byte, n string) bool { return strings.Contains(string(raw), `"n":"`+n+`"`) }
	if !has(ours[0].Object.Raw, "1") || ours[0].OldObject.Raw != nil {
		t.Errorf("create saw %s, %s", ours[0].Object.Raw, ours[0].OldObject.Raw)
	}
	if !has(ours[1].Object.Raw, "2") || !has(ours[1].OldObject.Raw, "1") {
		t.Errorf("update saw %s, %s", ours[1].Object.Raw, ours[1].OldObject.Raw)
	}
	if ours[2].Object.Raw != nil || !has(ours[2].OldObject.Raw, "2") ||
		!strings.Contains(string(ours[2].Options.Raw), `"kind":"DeleteOptions"`) {
		t.Errorf("delete saw %s, %s, %s", ours[2].Object.Raw, ours[2].OldObject.Raw, ours[2].Options.Raw)
	}
	err = client.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("p").SubResource(
		"attach").Do(t.Context()).Error()
	if want :=
		`admission webhook "all.example.com" denied the request: attaching to pods is not allowed`; err == nil ||
		err.Error() != want {
		t.Errorf("attach: got %v, want %s", err, want)
	}
}

// TestCollectionsHaveNoName checks that the review for deleting a collection contains no name.
func TestCollectionsHaveNoName(t *testing.T) {
	s, h := testserver.Start(t, testserver.Options{}), newHooks(t)
	h.on("end", deny("stays"))
	h.on("kind", patch(`[{"op":"replace","path":"/kind","value":"Secret"},{"op":"remove","path":"/data"}]`))
	install(t, s, []admissionregistrationv1.ValidatingWebhook{
		validating(h, "end", "configmaps", admissionregistrationv1.Delete)}, nil)
	maps := s.Client.CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), configMap("a", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "webhooks are asked", func(ctx context.Context) bool {
		return maps.Delete(ctx, "a", metav1.DeleteOptions{DryRun: []string{"All"}}) != nil
	})
	if seen := h.take("end"); len(seen) == 0 || seen[0].Name != "a" {
		t.Errorf("deletion of one seen as %+v", seen)
	}
	if err := maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err == nil ||
		!strings.Contains(err.Error(), "stays") {
		t.Errorf("a collection that stays: %v", err)
	}
	if seen := h.take("end"); len(seen) != 1 || seen[0].Name != "" ||
		!strings.Contains(string(seen[0].OldObject.Raw), `"name":"a"`) {
		t.Errorf("deletion of a collection seen as %+v", seen)
	}
	install(t, s, nil, []admissionregistrationv1.MutatingWebhook{mutating(h, "kind", "configmaps")})
	var err error
	eventually(t, "webhooks are asked", func(ctx context.Context) bool {
		_, err = try(ctx, s, configMap("b", nil))
		return err != nil
	})
	if want := "converting (v1.Secret) to (core.ConfigMap): unknown conversion"; err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
