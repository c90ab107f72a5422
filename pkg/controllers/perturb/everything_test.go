// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package perturb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"keelson.dev/keelson/pkg/api"
	"keelson.dev/keelson/pkg/controllers"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/csidrivers"
	"keelson.dev/keelson/pkg/controllers/perturb"
)

// full is the name of the namespace that gets an object of every kind.
const full = "everything"

// widget is the kind of the custom resource in that namespace.
var widget = schema.GroupKind{Group: "example.com", Kind: "Widget"}

// TestNamespaceOfEverything checks that a namespace with objects of every namespaced kind, and with
// the finalizers of all controllers, is deleted within a minute and leaves nothing in the store.
func TestNamespaceOfEverything(t *testing.T) {
	objects := everything(t)
	resources := map[schema.GroupKind]string{widget: "widgets"}
	for _, row := range api.Rows(api.Deps{}) {
		if !row.Namespaced || row.Ephemeral {
			continue
		}
		kind := schema.GroupKind{Group: row.Group, Kind: row.Kind}
		resources[kind] = row.Resource
		if !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
			return o.GroupVersionKind().GroupKind() == kind
		}) {
			t.Errorf("testdata/everything.yaml has no %s", kind)
		}
	}
	options := controller.Options{RootCA: []byte("-----BEGIN CERTIFICATE-----\n"), EndedPods: 100}
	s := perturb.Scenario{
		Options: options, Kubelet: perturb.Running, Settle: time.Second,
		Serve: map[string]bool{"api/all": true, "internal.apiserver.k8s.io/v1alpha1": true,
			"storagemigration.k8s.io/v1": true, "scheduling.k8s.io/v1beta1": true},
		Script: func(ctx context.Context, u *perturb.Users) error { return endEverything(ctx, u, objects, resources) },
	}
	for _, e := range controllers.Table() {
		if e.Enabled == nil || e.Enabled(options) {
			s.Members = append(s.Members, perturb.Member{Account: account(e), New: e.New})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		if _, err := perturb.NewCell(t, s.Serve).Run(s, 0, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
	})
}

// account returns the service account with which a controller runs. The controller of CSI drivers
// runs as an administrator here, because the role of its account is installed together with the
// drivers.
func account(e controllers.Entry) string {
	if e.Name == csidrivers.Name {
		return ""
	}
	return e.Account
}

// everything reads the objects from testdata/everything.yaml.
func everything(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for docs := yaml.NewYAMLToJSONDecoder(bytes.NewReader(text)); ; {
		o := &unstructured.Unstructured{}
		switch err := docs.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return out
		case err != nil:
			t.Fatalf("object %d: %v", len(out)+1, err)
		}
		out = append(out, o)
	}
}

// endEverything creates the objects in a namespace, waits until the controllers have handled them,
// and deletes the namespace. It returns an error if that takes longer than a minute.
func endEverything(ctx context.Context, u *perturb.Users, objects []*unstructured.Unstructured,
	resources map[schema.GroupKind]string) error {
	if err := define(ctx, u); err != nil {
		return err
	}
	namespaces := u.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": full}}}
	if _, err := namespaces.Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, o := range objects {
		if err := makeOne(ctx, u, o, resources[o.GroupVersionKind().GroupKind()]); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	u.Wait(time.Minute + 10*time.Second) // long enough for the CronJob, which starts a job every minute
	if err := namespaces.Delete(ctx, full, metav1.DeleteOptions{}); err != nil {
		return err
	}
	for range 60 {
		u.Wait(time.Second)
		var err error
		if ns, err = namespaces.Get(ctx, full, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nothingOf(u)
		} else if err != nil {
			return err
		}
	}
	return fmt.Errorf("the namespace was not deleted: %v", ns.Object["status"])
}

// makeOne creates an object and writes its status if it has one.
func makeOne(ctx context.Context, u *perturb.Users, o *unstructured.Unstructured, resource string) error {
	client := u.Dynamic.Resource(o.GroupVersionKind().GroupVersion().WithResource(resource)).Namespace(full)
	_, err := client.Create(ctx, o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) && o.GetName() == "default" {
		return nil // the controller of service accounts has created this object already
	}
	status, has := o.Object["status"]
	if err != nil || !has {
		return err
	}
	body, err := (&unstructured.Unstructured{Object: map[string]any{"apiVersion": o.GetAPIVersion(),
		"kind": o.GetKind(), "status": status}}).MarshalJSON()
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, o.GetName(), types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// define creates the CustomResourceDefinition of widgets and waits until they are served.
func define(ctx context.Context, u *perturb.Users) error {
	crd := &unstructured.Unstructured{}
	if err := crd.UnmarshalJSON(
		[]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},
		"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)); err != nil {
		return err
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	if _, err := u.Dynamic.Resource(crds).Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return err
	}
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	for {
		_, err := u.Dynamic.Resource(widgets).List(ctx, metav1.ListOptions{})
		if !apierrors.IsNotFound(err) {
			return err
		}
		u.Wait(time.Second)
	}
}

// nothingOf returns an error if the store still has keys of objects in the namespace full.
func nothingOf(u *perturb.Users) error {
	var left []string
	for key := range u.Contents() {
		if strings.Contains(key, "/"+full+"/") {
			left = append(left, key)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("the namespace was deleted but left %v", left)
	}
	return nil
}
