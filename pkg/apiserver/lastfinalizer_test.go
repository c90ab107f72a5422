// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestLastFinalizer removes the last finalizer of objects that are being deleted. As in Kubernetes,
// the answer has the changes of the request, but the resourceVersion from before it. Watches
// report the object as it was stored before the request, with the revision of the deletion.
func TestLastFinalizer(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	widgets, client := defineFreeFormWidgets(t, s), dynamicClient(t, s)
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	patch := func(kind types.PatchType, body string) func(context.Context, dynamic.ResourceInterface,
		*unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return func(ctx context.Context, c dynamic.ResourceInterface, obj *unstructured.Unstructured) (
			*unstructured.Unstructured, error) {
			return c.Patch(ctx, obj.GetName(), kind, []byte(body), metav1.PatchOptions{FieldManager: "test"})
		}
	}
	put := func(unconditional bool) func(context.Context, dynamic.ResourceInterface,
		*unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return func(ctx context.Context, c dynamic.ResourceInterface, obj *unstructured.Unstructured) (
			*unstructured.Unstructured, error) {
			obj = obj.DeepCopy()
			obj.SetFinalizers(nil)
			if unconditional {
				obj.SetResourceVersion("")
			}
			return c.Update(ctx, obj, metav1.UpdateOptions{})
		}
	}
	const none = `{"metadata":{"finalizers":null,"labels":{"last":"yes"}}}`
	for name, c := range map[string]struct {
		gvr  schema.GroupVersionResource
		kind string
		end  func(context.Context, dynamic.ResourceInterface, *unstructured.Unstructured) (*unstructured.Unstructured, error)
	}{
		"update":          {configMaps, "ConfigMap", put(false)},
		"update of any":   {configMaps, "ConfigMap", put(true)},
		"merge patch":     {configMaps, "ConfigMap", patch(types.MergePatchType, none)},
		"strategic patch": {configMaps, "ConfigMap", patch(types.StrategicMergePatchType, none)},
		"JSON patch": {configMaps, "ConfigMap",
			patch(types.JSONPatchType, `[{"op":"remove","path":"/metadata/finalizers"}]`)},
		"apply": {configMaps, "ConfigMap",
			patch(types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)},
		"custom":            {widgets, "Widget", put(false)},
		"patch of a custom": {widgets, "Widget", patch(types.MergePatchType, none)},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, api := t.Context(), client.Resource(c.gvr).Namespace("default")
			obj := &unstructured.Unstructured{
				Object: map[string]any{"apiVersion": c.gvr.GroupVersion().String(), "kind": c.kind}}
			obj.SetName("a")
			obj.SetFinalizers([]string{"example.com/hold"})
			if _, err := api.Apply(ctx, "a", obj, metav1.ApplyOptions{FieldManager: "test"}); err != nil {
				t.Fatal(err)
			}
			if err := api.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			before, err := api.Get(ctx, "a", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			events, err := api.Watch(ctx, metav1.ListOptions{ResourceVersion: before.GetResourceVersion()})
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			answer, err := c.end(ctx, api, before)
			if err != nil {
				t.Fatal(err)
			}
			if len(answer.GetFinalizers()) != 0 || answer.GetResourceVersion() != before.GetResourceVersion() ||
				answer.GetUID() != before.GetUID() {
				t.Errorf("answered with version %s and finalizers %v, want version %s and none",
					answer.GetResourceVersion(), answer.GetFinalizers(), before.GetResourceVersion())
			}
			checkDeleted(t, events, before)
		})
	}
}

// checkDeleted checks that the next event is a deletion, and that its object has the finalizers and
// labels of the object before the deletion, but a newer revision.
func checkDeleted(t *testing.T, events watch.Interface, before metav1.Object) {
	t.Helper()
	e := <-events.ResultChan()
	last, ok := e.Object.(metav1.Object)
	if !ok || e.Type != watch.Deleted {
		t.Fatalf("watched %+v", e)
	}
	if len(last.GetFinalizers()) != len(before.GetFinalizers()) || len(last.GetLabels()) != len(before.GetLabels()) {
		t.Errorf("deleted with finalizers %v and labels %v, want what was stored", last.GetFinalizers(), last.GetLabels())
	}
	if revision(t, last) <= revision(t, before) {
		t.Errorf("deleted at %s, after %s", last.GetResourceVersion(), before.GetResourceVersion())
	}
}

func revision(t *testing.T, obj metav1.Object) int64 {
	t.Helper()
	n, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFinalizedNamespace removes the last finalizer of a namespace by the finalize subresource, and
// makes the same checks as TestLastFinalizer.
func TestFinalizedNamespace(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	ctx, api := t.Context(), s.Client.CoreV1().Namespaces()
	if _, err := api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(ctx, "n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ns, err := api.Get(ctx, "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := api.Watch(ctx, metav1.ListOptions{ResourceVersion: ns.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	wanted := ns.DeepCopy()
	wanted.Spec.Finalizers = nil
	answer, err := api.Finalize(ctx, wanted, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if answer.ResourceVersion != ns.ResourceVersion || len(answer.Spec.Finalizers) != 0 {
		t.Errorf("answered with version %s and %+v, want version %s", answer.ResourceVersion, answer.Spec, ns.ResourceVersion)
	}
	checkDeleted(t, events, ns)
}

// TestDeletedObject checks that if the answer to a DELETE contains the last state of the object,
// its resourceVersion is the revision of the deletion.
func TestDeletedObject(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	services := schema.GroupVersionResource{Version: "v1", Resource: "services"}
	api := dynamicClient(t, s).Resource(services).Namespace("default")
	svc := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "s"},
		"spec": map[string]any{"clusterIP": "None"},
	}}
	made, err := api.Create(t.Context(), svc, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var last corev1.Service
	if err := s.Client.CoreV1().RESTClient().Delete().Namespace("default").Resource("services").Name("s").Do(
		t.Context()).Into(&last); err != nil {
		t.Fatal(err)
	}
	if last.Name != "s" || revision(t, &last) <= revision(t, made) {
		t.Errorf("answered %+v", last.ObjectMeta)
	}
}
