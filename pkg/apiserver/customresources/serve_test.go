// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// env is a running API server with clients for CustomResourceDefinitions and custom resources.
type env struct {
	*testserver.Server
	crds    clientset.Interface
	dynamic dynamic.Interface
}

func newEnv(t testing.TB, o testserver.Options) *env {
	t.Helper()
	e := &env{Server: testserver.Start(t, o)}
	var err error
	if e.crds, err = clientset.NewForConfig(e.Config); err != nil {
		t.Fatal(err)
	}
	if e.dynamic, err = dynamic.NewForConfig(e.Config); err != nil {
		t.Fatal(err)
	}
	return e
}

func parse[T any](t testing.TB, doc string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(doc), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// define creates the CustomResourceDefinition in doc and waits until it is established.
func (e *env) define(t testing.TB, doc string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(),
		parse[apiextensionsv1.CustomResourceDefinition](t, doc), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return e.await(t, crd.Name, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd != nil && apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
	})
}

// await waits until ok returns true for a CustomResourceDefinition. If the definition does not
// exist, it calls ok with nil.
func (e *env) await(t testing.TB, name string,
	ok func(*apiextensionsv1.CustomResourceDefinition) bool) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		crd, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			crd, err = nil, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if ok(crd) {
			return crd
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// eventually waits until ok returns true.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for !ok() {
		if ctx.Err() != nil {
			t.Fatal("it does not come to that")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

const crontabs = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crontabs.stable.example.com}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: crontabs, singular: crontab, kind: CronTab, shortNames: [ct], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}}
    selectableFields: [{jsonPath: .spec.image}]
    additionalPrinterColumns:
    - {name: Image, type: string, jsonPath: .spec.image}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [cronSpec]
            properties:
              cronSpec: {type: string, pattern: '^[0-9* /]+$'}
              image: {type: string, default: busybox}
              replicas: {type: integer, minimum: 0, maximum: 10}
              tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
            x-kubernetes-validations:
            - rule: "!has(self.replicas) || self.replicas != 7"
              message: seven is taken
          status:
            type: object
            properties:
              replicas: {type: integer}
              selector: {type: string}
`

func crontabResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "stable.example.com", Version: "v1", Resource: "crontabs"}
}

func crontab(t testing.TB, name, spec string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: *parse[map[string]any](t,
		"{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: "+name+"}, spec: "+spec+"}")}
}

// TestLife checks that a CustomResourceDefinition is established. Its objects can be created, read,
// watched, changed and deleted. If the definition is deleted, the objects that are left are
// deleted, too.
func TestLife(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	crd := e.define(t, crontabs)
	if got := crd.Status.AcceptedNames; got.Kind != "CronTab" || got.ListKind != "CronTabList" ||
		!slices.Equal(got.ShortNames, []string{"ct"}) {
		t.Errorf("accepted names %+v", got)
	}
	if !slices.Equal(crd.Status.StoredVersions, []string{"v1"}) {
		t.Errorf("stored versions %v", crd.Status.StoredVersions)
	}
	ctx, tabs := t.Context(), e.dynamic.Resource(crontabResource()).Namespace("default")
	watch, err := tabs.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	made, err := tabs.Create(ctx, crontab(t, "a", `{cronSpec: "* *", junk: 1}`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if image, _, _ := unstructured.NestedString(made.Object, "spec", "image"); image != "busybox" ||
		made.GetGeneration() != 1 {
		t.Errorf("created %v", made.Object)
	}
	if _, junk, _ := unstructured.NestedFieldNoCopy(made.Object, "spec", "junk"); junk {
		t.Error("an unknown field was kept")
	}
	if ev := <-watch.ResultChan(); ev.Type != "ADDED" {
		t.Errorf("event %v", ev)
	}
	patched, err := tabs.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{})
	if err != nil || patched.GetGeneration() != 2 {
		t.Fatalf("patched %v: %v", patched, err)
	}
	patched, err = tabs.Patch(ctx, "a", types.MergePatchType, []byte(`{"status":{"replicas":3}}`),
		metav1.PatchOptions{}, "status")
	if err != nil || patched.GetGeneration() != 2 {
		t.Fatalf("patched status %v: %v", patched, err)
	}
	list, err := tabs.List(ctx, metav1.ListOptions{FieldSelector: "spec.image=busybox"})
	if err != nil || len(list.Items) != 1 || list.GetKind() != "CronTabList" {
		t.Fatalf("listed %v: %v", list, err)
	}
	if list, err = tabs.List(ctx, metav1.ListOptions{FieldSelector: "spec.image=other"}); err != nil ||
		len(list.Items) != 0 {
		t.Fatalf("listed %v: %v", list, err)
	}
	resources, err := e.Client.Discovery().ServerResourcesForGroupVersion("stable.example.com/v1")
	if err != nil || len(resources.APIResources) != 3 {
		t.Fatalf("discovered %+v: %v", resources, err)
	}
	if err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, crd.Name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.await(t, crd.Name, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd == nil })
	// The server stops serving the resource once its watch delivers the deletion.
	eventually(t, func() bool {
		_, err := tabs.List(ctx, metav1.ListOptions{})
		return apierrors.IsNotFound(err)
	})
}

// TestOwnGroupVersions checks a CustomResourceDefinition with a built-in group version and another
// version of the same group: its resource is served only in the other version.
func TestOwnGroupVersions(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	e.define(t, `
metadata: {name: foos.networking.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, a test"}}
spec:
  group: networking.k8s.io
  scope: Cluster
  names: {plural: foos, singular: foo, kind: Foo, listKind: FooList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v9, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`)
	foos := func(version string) error {
		_, err := e.dynamic.Resource(schema.GroupVersionResource{Group: "networking.k8s.io", Version: version,
			Resource: "foos"}).List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := foos("v9"); err != nil {
		t.Errorf("another version: %v", err)
	}
	if err := foos("v1"); !apierrors.IsNotFound(err) {
		t.Errorf("the server's own version: %v", err)
	}
	list, err := e.crds.Discovery().ServerResourcesForGroupVersion("networking.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.APIResources {
		if r.Name == "foos" {
			t.Error("discovery includes it")
		}
	}
}
