// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storageversion_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"keelson.dev/apiserver/store/kv"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/storageversion"
	"keelson.dev/keelson/pkg/features"
)

// start starts an API server with a feature and its API.
func start(t *testing.T, feature, api string) *testserver.Server {
	t.Helper()
	return testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.RuntimeConfig = map[string]bool{api: true}
		c.Features.Turned = features.Turned{feature: true}
	}})
}

func startMigrations(t *testing.T) *testserver.Server {
	t.Helper()
	return start(t, features.StorageVersionMigrator, "storagemigration.k8s.io/v1")
}

// ended creates a migration, waits until it has ended, and returns it.
func ended(t *testing.T, s *testserver.Server, group,
	resource string) *storagemigrationv1.StorageVersionMigration {
	t.Helper()
	api := s.Client.StoragemigrationV1().StorageVersionMigrations()
	m, err := api.Create(t.Context(), &storagemigrationv1.StorageVersionMigration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"},
		Spec: storagemigrationv1.StorageVersionMigrationSpec{
			Resource: metav1.GroupResource{Group: group, Resource: resource}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the end of the migration", func(ctx context.Context) (any, bool) {
		if m, err = api.Get(ctx, m.Name, metav1.GetOptions{}); err != nil {
			return err, false
		}
		return m.Status, meta.IsStatusConditionFalse(m.Status.Conditions, string(storagemigrationv1.MigrationRunning))
	})
	return m
}

func succeeded(m *storagemigrationv1.StorageVersionMigration) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions,
		string(storagemigrationv1.MigrationSucceeded)) && m.Status.ResourceVersion != ""
}

const versions = `[{"name":"v1","served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}},
	{"name":"v2","served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]`

// TestCustomResources checks that a migration stores all objects of a custom resource in the new
// version, and updates the status of the definition.
func TestCustomResources(t *testing.T) {
	s := startMigrations(t)
	ctx := t.Context()
	things := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
	dyn, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := apiextensionsclient.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := crd.UnmarshalJSON(
		[]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},
		"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},"versions":` + fmt.Sprintf(versions, true, false) + "}}")); err != nil {
		t.Fatal(err)
	}
	crds := dyn.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	if _, err := crds.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const n = 20
	for i := range n {
		controllertest.Eventually(t, "an object", func(ctx context.Context) (any, bool) {
			_, err := dyn.Resource(things).Namespace("default").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Thing",
				"metadata": map[string]any{"name": fmt.Sprint("t-", i)}, "spec": map[string]any{"a": "b"},
			}}, metav1.CreateOptions{})
			return err, err == nil
		})
	}
	body := `{"spec":{"versions":` + fmt.Sprintf(versions, false, true) + "}}"
	if _, err := crds.Patch(ctx, "things.example.com", types.MergePatchType, []byte(body),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	// Wait until the server uses the changed definition, so that it stores objects in the new
	// version.
	controllertest.Eventually(t, "the new version", func(ctx context.Context) (any, bool) {
		_, err := dyn.Resource(things).Namespace("default").Patch(ctx, "t-0", types.MergePatchType,
			[]byte(`{"spec":{"a":"c"}}`), metav1.PatchOptions{})
		old, all := stored(t, s)
		if err == nil && old == n {
			_, err = dyn.Resource(things).Namespace("default").Patch(ctx, "t-0", types.MergePatchType,
				[]byte(`{"spec":{"a":"b"}}`), metav1.PatchOptions{})
		}
		return fmt.Sprint(old, all, err), err == nil && old == n-1
	})
	controllertest.RunAs(t, s, "storage-version-migrator-controller", controller.Options{}, storageversion.NewMigrator)
	if m := ended(t, s, "example.com", "things"); !succeeded(m) {
		t.Fatalf("migration: %+v", m.Status)
	}
	if old, all := stored(t, s); old != 0 || all != n {
		t.Errorf("%d of %d objects are stored in the old version", old, all)
	}
	after, err := definitions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, "things.example.com",
		metav1.GetOptions{})
	if err != nil || len(after.Status.StoredVersions) != 1 || after.Status.StoredVersions[0] != "v2" {
		t.Errorf("stored versions: %v, %v", after.Status.StoredVersions, err)
	}
	for _, c := range after.Status.Conditions {
		if c.Type == apiextensionsv1.StorageMigrating &&
			(c.Status != apiextensionsv1.ConditionFalse || c.Reason != "MigrationSucceeded") {
			t.Errorf("condition %+v", c)
		}
	}
	// After the migration, the old version can be removed from the definition.
	only := `{"spec":{"versions":[{"name":"v2","served":true,"storage":true,` +
		`"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
	if _, err := crds.Patch(ctx, "things.example.com", types.MergePatchType, []byte(only),
		metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

// stored returns the number of objects in the old version, and the number of all objects in the
// store.
func stored(t *testing.T, s *testserver.Server) (old, all int) {
	t.Helper()
	r, err := s.KV.Range(t.Context(), kv.RangeOptions{Prefix: "/registry/example.com/things/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range r.Items {
		var o metav1.TypeMeta
		if err := json.Unmarshal(item.Value, &o); err != nil {
			t.Fatal(err)
		}
		if all++; o.APIVersion == "example.com/v1" {
			old++
		}
	}
	return old, all
}

// TestNothingChanges checks that a migration does not change objects that are already stored
// correctly, and that a migration that is not possible fails.
func TestNothingChanges(t *testing.T) {
	s := startMigrations(t)
	ctx := t.Context()
	was, err := s.Client.CoreV1().ConfigMaps("default").Create(ctx,
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controllertest.RunAs(t, s, "storage-version-migrator-controller", controller.Options{}, storageversion.NewMigrator)
	if m := ended(t, s, "", "configmaps"); !succeeded(m) {
		t.Errorf("migration: %+v", m.Status)
	}
	is, err := s.Client.CoreV1().ConfigMaps("default").Get(ctx, "c", metav1.GetOptions{})
	if err != nil || is.ResourceVersion != was.ResourceVersion || len(is.ManagedFields) != len(was.ManagedFields) {
		t.Errorf("the object is %+v, was %+v, %v", is, was, err)
	}
	m := ended(t, s, "authentication.k8s.io", "tokenreviews")
	c := meta.FindStatusCondition(m.Status.Conditions, string(storagemigrationv1.MigrationFailed))
	if c == nil || !strings.Contains(c.Message, "does not support discovery operations: [update patch list]") {
		t.Errorf("migration of what is not stored: %+v", m.Status)
	}
}
