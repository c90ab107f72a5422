// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

const endpoints = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: places.stable.example.com}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: places, singular: place, kind: Place}
  conversion: {strategy: None}
  versions:
  - name: v1
    served: true
    storage: true
    selectableFields: [{jsonPath: .host}]
    schema: {openAPIV3Schema: {type: object, properties: {host: {type: string, x-kubernetes-validations: [{rule: self != "no", message: no is none}]}, port: {type: string, default: "80"}}}}
  - name: v2
    served: true
    storage: false
    selectableFields: [{jsonPath: .hostPort}]
    schema: {openAPIV3Schema: {type: object, properties: {hostPort: {type: string}}}}
`

func places(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "stable.example.com", Version: version, Resource: "places"}
}

// webhook runs a webhook that converts between v1 and v2 of the test's kind. It returns the number
// of objects that it was asked to convert. It rejects objects with the annotation "refuse".
func webhook(t *testing.T) (*apiextensionsv1.WebhookConversion, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review apiextensionsv1.ConversionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID,
			Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			asked.Add(1)
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(raw.Raw); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			if u.GetAnnotations()["refuse"] != "" {
				answer.Result = metav1.Status{Status: metav1.StatusFailure, Message: "I will not"}
				break
			}
			convertPlace(u, review.Request.DesiredAPIVersion)
			answer.ConvertedObjects = append(answer.ConvertedObjects, runtime.RawExtension{Object: u})
		}
		review.Request, review.Response = nil, answer
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &apiextensionsv1.WebhookConversion{
		ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &server.URL, CABundle: ca},
		ConversionReviewVersions: []string{"v1"},
	}, &asked
}

func convertPlace(u *unstructured.Unstructured, to string) {
	if strings.HasSuffix(to, "/v2") {
		host, _, _ := unstructured.NestedString(u.Object, "host")
		port, _, _ := unstructured.NestedString(u.Object, "port")
		delete(u.Object, "host")
		delete(u.Object, "port")
		u.Object["hostPort"] = host + ":" + port
	} else {
		both, _, _ := unstructured.NestedString(u.Object, "hostPort")
		host, port, _ := strings.Cut(both, ":")
		delete(u.Object, "hostPort")
		u.Object["host"], u.Object["port"] = host, port
	}
	u.SetAPIVersion(to)
}

func place(name, version string, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "stable.example.com/" + version, "kind": "Place", "metadata": map[string]any{"name": name},
	}}
	for k, v := range fields {
		u.Object[k] = v
	}
	return u
}

// TestWebhookConversion checks that objects can be written and read in any served version. A list
// has all objects in one version, and field selectors are those of that version.
func TestWebhookConversion(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	hook, _ := webhook(t)
	crd := parse[apiextensionsv1.CustomResourceDefinition](t, endpoints)
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter,
		Webhook: hook}
	e.define(t, toYAML(t, crd))
	ctx := t.Context()
	v1, v2 := e.dynamic.Resource(places("v1")).Namespace("default"), e.dynamic.Resource(places("v2")).Namespace("default")

	if _, err := v1.Create(ctx, place("one", "v1", map[string]any{"host": "a"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := v2.Get(ctx, "one", metav1.GetOptions{})
	if err != nil || got.Object["hostPort"] != "a:80" || got.GetAPIVersion() != "stable.example.com/v2" {
		t.Fatalf("in v2: %v, error %v", got, err)
	}
	made, err := v2.Create(ctx, place("two", "v2", map[string]any{"hostPort": "b:81"}), metav1.CreateOptions{})
	if err != nil || made.Object["hostPort"] != "b:81" {
		t.Fatalf("made in v2: %v, error %v", made, err)
	}
	if got, err = v1.Get(ctx, "two", metav1.GetOptions{}); err != nil || got.Object["port"] != "81" {
		t.Fatalf("in v1: %v, error %v", got, err)
	}
	if got, err = v2.Patch(ctx, "two", types.MergePatchType, []byte(`{"hostPort":"b:82"}`),
		metav1.PatchOptions{}); err != nil || got.GetGeneration() != 2 {
		t.Fatalf("patched in v2: %v, error %v", got, err)
	}
	e.storeIn(t, crd.Name, "v2")
	if _, err := v1.Create(ctx, place("three", "v1", map[string]any{"host": "c", "port": "83"}),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := v1.List(ctx, metav1.ListOptions{})
	if err != nil || fmt.Sprint(fieldOf(list, "port")) != "[80 83 82]" {
		t.Errorf("listed in v1: %v, error %v", fieldOf(list, "port"), err)
	}
	if list, err = v2.List(ctx, metav1.ListOptions{}); err != nil ||
		fmt.Sprint(fieldOf(list, "hostPort")) != "[a:80 c:83 b:82]" {
		t.Errorf("listed in v2: %v, error %v", fieldOf(list, "hostPort"), err)
	}
	if list, err = v2.List(ctx, metav1.ListOptions{FieldSelector: "hostPort=b:82"}); err != nil || len(list.Items) != 1 {
		t.Errorf("selected in v2: %v, error %v", list, err)
	}
	if _, err := v2.List(ctx, metav1.ListOptions{FieldSelector: "host=b"}); !apierrors.IsBadRequest(err) {
		t.Errorf("selected by a field of v1 in v2: %v", err)
	}
	refused := place("bad", "v1", map[string]any{"host": "c"})
	refused.SetAnnotations(map[string]string{"refuse": "yes"})
	// The server learns of the changed definition with a delay. Until then, it stores objects in v1,
	// without calling the webhook.
	eventually(t, func() bool {
		_, err := v1.Create(ctx, refused, metav1.CreateOptions{})
		if err == nil {
			err = v1.Delete(ctx, refused.GetName(), metav1.DeleteOptions{})
		}
		return err != nil && strings.Contains(err.Error(), "I will not")
	})
}

// TestStalledConversion checks that a conversion webhook that does not answer does not delay
// watches of other resources.
func TestStalledConversion(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	hook, _ := webhook(t)
	stalled, release := make(chan struct{}, 100), make(chan struct{})
	var ended atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// An HTTP server detects that the client has closed the connection only after it has read the
		// body.
		_, _ = io.Copy(io.Discard, r.Body)
		stalled <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-release:
		}
		ended.Add(1)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	crd := parse[apiextensionsv1.CustomResourceDefinition](t, endpoints)
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter,
		Webhook: hook}
	e.define(t, toYAML(t, crd))
	ctx := t.Context()
	v1, v2 := e.dynamic.Resource(places("v1")).Namespace("default"), e.dynamic.Resource(places("v2")).Namespace("default")

	// Replace the webhook by one that does not answer.
	client := e.crds.ApiextensionsV1().CustomResourceDefinitions()
	now, err := client.Get(ctx, crd.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now.Spec.Conversion.Webhook.ClientConfig.URL = &server.URL
	now.Spec.Conversion.Webhook.ClientConfig.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: server.Certificate().Raw})
	if _, err := client.Update(ctx, now, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	configMaps := e.dynamic.Resource(schema.GroupVersionResource{Version: "v1",
		Resource: "configmaps"}).Namespace("default")
	others, err := configMaps.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer others.Stop()
	// Create objects until the cache for v2 calls the webhook to convert one of them.
	for i, asked := 0, false; !asked; i++ {
		if _, err := v2.List(ctx, metav1.ListOptions{}); err != nil {
			t.Fatal(err) // the list is empty, so it needs no webhook
		}
		name := fmt.Sprintf("p%d", i)
		if _, err := v1.Create(ctx, place(name, "v1", map[string]any{"host": "a"}), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		marker := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": name}}}
		if _, err := configMaps.Create(ctx, marker, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for seen := false; !seen; {
			ev, ok := <-others.ResultChan()
			if !ok {
				t.Fatal("watch ended")
			}
			u, _ := ev.Object.(*unstructured.Unstructured)
			seen = u != nil && u.GetName() == name
		}
		if n := ended.Load(); n > 0 {
			t.Fatalf("a watch of another resource waited until %d calls of the webhook had ended", n)
		}
		select {
		case <-stalled:
			asked = true
		default:
			if err := v1.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// storeIn makes version the storage version of a CustomResourceDefinition.
func (e *env) storeIn(t *testing.T, name, version string) {
	t.Helper()
	client := e.crds.ApiextensionsV1().CustomResourceDefinitions()
	crd, err := client.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == version
	}
	if crd, err = client.Update(t.Context(), crd, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(crd.Status.StoredVersions) != "[v1 v2]" {
		t.Errorf("stored versions %v", crd.Status.StoredVersions)
	}
}

func fieldOf(list *unstructured.UnstructuredList, field string) []any {
	var out []any
	for i := range list.Items {
		out = append(out, list.Items[i].Object[field])
	}
	return out
}

func toYAML(t *testing.T, obj any) string {
	t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestServedVersions checks that requests in a version get NotFound while the version is not
// served, and find the objects once it is served again.
func TestServedVersions(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	e.define(t, endpoints)
	ctx := t.Context()
	v1, v2 := e.dynamic.Resource(places("v1")).Namespace("default"), e.dynamic.Resource(places("v2")).Namespace("default")
	if _, err := v2.Create(ctx, place("one", "v2", map[string]any{"hostPort": "a"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Without a conversion webhook, fields that are not in the schema of the storage version are
	// dropped.
	if got, err := v1.Get(ctx, "one", metav1.GetOptions{}); err != nil || got.Object["hostPort"] != nil ||
		got.Object["port"] != "80" {
		t.Errorf("in v1: %v, error %v", got, err)
	}
	serve := func(served string) {
		t.Helper()
		if _, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Patch(ctx,
			"places.stable.example.com", types.JSONPatchType,
			[]byte(`[{"op":"replace","path":"/spec/versions/1/served","value":`+served+`}]`),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	serve("false")
	eventually(t, func() bool { _, err := v2.Get(ctx, "one", metav1.GetOptions{}); return apierrors.IsNotFound(err) })
	if _, err := v1.Get(ctx, "one", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	serve("true")
	eventually(t, func() bool { _, err := v2.Get(ctx, "one", metav1.GetOptions{}); return err == nil })
}
