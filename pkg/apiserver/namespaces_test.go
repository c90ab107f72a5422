// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// slowHook is a webhook that allows everything. If an object has the label "hold", the webhook
// answers only when the test sends to release.
type slowHook struct {
	*httptest.Server
	seen    chan struct{} // receives once for each held request
	release chan struct{} // each value that is sent lets one held request be answered
}

func newSlowHook(t *testing.T) *slowHook {
	h := &slowHook{seen: make(chan struct{}), release: make(chan struct{})}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "bad review", http.StatusBadRequest)
			return
		}
		var obj metav1.PartialObjectMetadata
		if err := json.Unmarshal(review.Request.Object.Raw, &obj); err != nil {
			http.Error(w, "bad object", http.StatusBadRequest)
			return
		}
		if obj.Labels["hold"] != "" {
			select {
			case h.seen <- struct{}{}:
			case <-r.Context().Done():
				return
			}
			select {
			case <-h.release:
			case <-r.Context().Done():
				return
			}
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true,
			Warnings: []string{"reviewed"}}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(h.Close)
	return h
}

// install registers the webhook for all creations and waits until the server calls it.
func (h *slowHook) install(t *testing.T, s *testserver.Server) {
	t.Helper()
	none, fail, seconds := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, int32(30)
	url := h.URL + "/"
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "slow"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "slow.example.com", SideEffects: &none, FailurePolicy: &fail, TimeoutSeconds: &seconds,
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"slow": "yes"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"},
					Resources: []string{"*"}},
			}},
		}},
	}
	if _, err := s.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), hook,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	makeSlowNamespace(t, s.Client, "probe")
	warned := make(warnings, 1)
	cfg := rest.CopyConfig(s.Config)
	cfg.WarningHandler = warned
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) bool {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
		_, err := client.CoreV1().ConfigMaps("probe").Create(ctx, probe,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		select {
		case <-warned:
			return err == nil
		default:
			return false
		}
	})
}

// warnings receives the warnings that a server sends to a client.
type warnings chan struct{}

func (w warnings) HandleWarningHeader(int, string, string) {
	select {
	case w <- struct{}{}:
	default:
	}
}

func eventually(t *testing.T, cond func(ctx context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			return cond(ctx), nil
		})
	if err != nil {
		t.Fatal(err)
	}
}

func makeSlowNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"slow": "yes"}}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// endNamespace deletes a namespace. Its contents stay until finish is called.
func endNamespace(t *testing.T, client kubernetes.Interface, name string) (finish func()) {
	t.Helper()
	api := client.CoreV1().Namespaces()
	if err := api.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		ns, err := api.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			ns.Spec.Finalizers = nil
			_, err = api.Finalize(t.Context(), ns, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("finalized namespace: %v", err)
		}
	}
}

// defineFreeFormWidgets creates a custom resource and returns once the server serves it.
func defineFreeFormWidgets(t *testing.T, s *testserver.Server) schema.GroupVersionResource {
	t.Helper()
	client, err := apiextensionsclient.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	keep := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget",
				Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep},
				},
			}},
		},
	}
	if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), crd,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	eventually(t, func(ctx context.Context) bool {
		_, err := dynamicClient(t, s).Resource(gvr).List(ctx, metav1.ListOptions{})
		return err == nil
	})
	return gvr
}

func dynamicClient(t *testing.T, s *testserver.Server) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// held returns an object whose creation the slow webhook holds.
func held(apiVersion, kind string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind,
		"metadata": map[string]any{"name": "late", "labels": map[string]any{"hold": "yes"}},
	}}
}

func created(ctx context.Context, c dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
	_, err := c.Create(ctx, obj, metav1.CreateOptions{})
	return err
}

func generated(ctx context.Context, c dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
	obj.SetName("")
	obj.SetGenerateName("late-")
	return created(ctx, c, obj)
}

func updated(ctx context.Context, c dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
	_, err := c.Update(ctx, obj, metav1.UpdateOptions{})
	return err
}

func applied(ctx context.Context, c dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
	_, err := c.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: "test"})
	return err
}

// TestCreateInFlight deletes namespaces while a webhook holds the creation of an object in them.
// The object is stored only if the namespace exists and is not terminating.
func TestCreateInFlight(t *testing.T) {
	one := testserver.Start(t, testserver.Options{})
	two := testserver.Start(t, testserver.Options{KV: one.KV, Dir: one.Dir})
	hook, widgets := newSlowHook(t), defineFreeFormWidgets(t, one)
	hook.install(t, one)
	core := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	writes := map[string]struct {
		gvr   schema.GroupVersionResource
		obj   *unstructured.Unstructured
		write func(context.Context, dynamic.ResourceInterface, *unstructured.Unstructured) error
	}{
		"create":           {core("configmaps"), held("v1", "ConfigMap"), created},
		"generated name":   {core("configmaps"), held("v1", "ConfigMap"), generated},
		"apply":            {core("configmaps"), held("v1", "ConfigMap"), applied},
		"create on update": {leases, held("coordination.k8s.io/v1", "Lease"), updated},
		"custom":           {widgets, held("example.com/v1", "Widget"), created},
		"custom apply":     {widgets, held("example.com/v1", "Widget"), applied},
		"endpoints":        {core("endpoints"), held("v1", "Endpoints"), created},
	}
	ends := map[string]struct {
		end  func(t *testing.T, ns string)
		want func(error) bool
	}{
		"terminating": {func(t *testing.T, ns string) { endNamespace(t, two.Client, ns) }, terminating},
		"gone":        {func(t *testing.T, ns string) { endNamespace(t, two.Client, ns)() }, apierrors.IsNotFound},
		"made again": {func(t *testing.T, ns string) {
			endNamespace(t, two.Client, ns)()
			makeSlowNamespace(t, two.Client, ns)
		}, func(err error) bool { return err == nil }},
		"relabelled": {func(t *testing.T, ns string) {
			patch := []byte(`{"metadata":{"labels":{"other":"yes"}}}`)
			if _, err := two.Client.CoreV1().Namespaces().Patch(t.Context(), ns, "application/merge-patch+json",
				patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}, func(err error) bool { return err == nil }},
	}
	for writeName, w := range writes {
		for endName, e := range ends {
			t.Run(writeName+"/"+endName, func(t *testing.T) {
				ns := strings.ReplaceAll(writeName+"-"+endName, " ", "-")
				makeSlowNamespace(t, one.Client, ns)
				client := dynamicClient(t, one).Resource(w.gvr).Namespace(ns)
				answer := make(chan error, 1)
				go func() { answer <- w.write(t.Context(), client, w.obj.DeepCopy()) }()
				<-hook.seen
				e.end(t, ns)
				hook.release <- struct{}{}
				err := <-answer
				if !e.want(err) {
					t.Errorf("the write was answered %v", err)
				}
				left, listErr := client.List(t.Context(), metav1.ListOptions{})
				if listErr != nil {
					t.Fatal(listErr)
				}
				if stored := len(left.Items) == 1; stored != (err == nil) {
					t.Errorf("stored: %v; the write was answered %v", stored, err)
				}
			})
		}
	}
}

// terminating reports whether err is Kubernetes' error for a creation in a terminating namespace.
func terminating(err error) bool {
	return apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// TestLeftovers checks that objects of a namespace whose spec.finalizers were emptied by hand can
// be changed and deleted, and that no objects can be created in the namespace.
func TestLeftovers(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	widgets, client := defineFreeFormWidgets(t, s), dynamicClient(t, s)
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	replicaSets := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	containers := map[string]any{"containers": []any{map[string]any{"name": "c", "image": "c"}}}
	set := held("apps/v1", "ReplicaSet")
	set.Object["spec"] = map[string]any{
		"replicas": int64(1), "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
			"spec":     containers,
		},
	}
	pod := held("v1", "Pod")
	pod.Object["spec"] = containers
	makeSlowNamespace(t, s.Client, "lost")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := s.Client.CoreV1().ServiceAccounts("lost").Create(t.Context(), account,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]struct {
		gvr schema.GroupVersionResource
		obj *unstructured.Unstructured
	}{
		"lease": {leases, held("coordination.k8s.io/v1", "Lease")}, "custom": {widgets, held("example.com/v1", "Widget")},
		"workload": {replicaSets, set}, "pod": {schema.GroupVersionResource{Version: "v1", Resource: "pods"}, pod},
	}
	for _, k := range kinds {
		k.obj.SetLabels(nil)
		k.obj.SetFinalizers([]string{"example.com/hold"})
		if err := created(t.Context(), client.Resource(k.gvr).Namespace("lost"), k.obj); err != nil {
			t.Fatal(err)
		}
	}
	endNamespace(t, s.Client, "lost")()
	// For admission plugins, which watch namespaces, the namespace may still be terminating.
	eventually(t, func(ctx context.Context) bool {
		another := held("coordination.k8s.io/v1", "Lease")
		another.SetName("another")
		return apierrors.IsNotFound(created(ctx, client.Resource(leases).Namespace("lost"), another))
	})
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			ctx, c := t.Context(), client.Resource(k.gvr).Namespace("lost")
			merge := func(body string, subresources ...string) {
				t.Helper()
				if _, err := c.Patch(ctx, "late", "application/merge-patch+json", []byte(body),
					metav1.PatchOptions{}, subresources...); err != nil {
					t.Errorf("patch of %v: %v", subresources, err)
				}
			}
			merge(`{"metadata":{"labels":{"by":"patch"}}}`)
			if name == "workload" {
				merge(`{"status":{"replicas":1}}`, "status")
				merge(`{"spec":{"replicas":0}}`, "scale")
			}
			obj, err := c.Get(ctx, "late", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			obj.SetAnnotations(map[string]string{"by": "update"})
			if err := updated(ctx, c, obj); err != nil {
				t.Errorf("update: %v", err)
			}
			plain := k.obj.DeepCopy()
			plain.SetAnnotations(map[string]string{"by": "apply"})
			if _, err := c.Apply(ctx, "late", plain, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
				t.Errorf("apply: %v", err)
			}
			if err := c.Delete(ctx, "late", metav1.DeleteOptions{}); err != nil {
				t.Errorf("delete: %v", err)
			}
			merge(`{"metadata":{"finalizers":null}}`)
			if _, err := c.Get(ctx, "late", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("without finalizers: %v", err)
			}
			for how, write := range map[string]func(context.Context, dynamic.ResourceInterface,
				*unstructured.Unstructured) error{
				"create": created, "apply": applied, "update": updated,
			} {
				if err := write(ctx, c, k.obj.DeepCopy()); !apierrors.IsNotFound(err) {
					t.Errorf("%s of a new object: %v", how, err)
				}
			}
		})
	}
}

// BenchmarkCreateInNamespace creates ConfigMaps with ten concurrent clients, over memory and over
// an embedded etcd.
func BenchmarkCreateInNamespace(b *testing.B) {
	for name, opts := range map[string]testserver.Options{"memory": {}, "etcd": {Etcd: embedded.Start}} {
		b.Run(name, func(b *testing.B) {
			s := testserver.Start(b, opts)
			b.SetParallelism(10)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}, Data: map[string]string{"a": "b"}}
					if _, err := s.Client.CoreV1().ConfigMaps("default").Create(b.Context(), obj, metav1.CreateOptions{}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
