// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestMachineRights checks that a node creates only its own Machine, writes only its own status, and
// no specification.
func TestMachineRights(t *testing.T) {
	s := machinesServer(t)
	client := func(user string, groups ...string) dynamic.ResourceInterface {
		objects, err := dynamic.NewForConfig(s.UserConfig(t, user, groups...))
		if err != nil {
			t.Fatal(err)
		}
		return objects.Resource(v1alpha1.GroupVersionResource())
	}
	node, admin := client("system:node:m1", "system:nodes"), client("admin", "system:masters")
	machine := func(name string, spec v1alpha1.MachineSpec) *unstructured.Unstructured {
		return asUnstructured(t, &v1alpha1.Machine{TypeMeta: v1alpha1.TypeMeta(),
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
	var none v1alpha1.MachineSpec
	// The server follows policies and rights by watches.
	controllertest.Eventually(t, "the policy", func(ctx context.Context) (any, bool) {
		_, err := node.Create(ctx, machine("m2", none), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err, err != nil && strings.Contains(err.Error(), "machine of its own name")
	})
	chosen := machine("m1", v1alpha1.MachineSpec{Release: "1"})
	if _, err := node.Create(t.Context(), chosen, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node chooses its release: %v", err)
	}
	own, err := node.Create(t.Context(), machine("m1", none), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	chosen = machine("m2", v1alpha1.MachineSpec{Release: "1.2.3~rc1"})
	other, err := admin.Create(t.Context(), chosen, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set := func(o *unstructured.Unstructured) *unstructured.Unstructured {
		o = o.DeepCopy()
		if err := unstructured.SetNestedField(o.Object, "0.2.0", "status", "release"); err != nil {
			t.Fatal(err)
		}
		return o
	}
	if _, err := node.UpdateStatus(t.Context(), set(own), metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := node.UpdateStatus(t.Context(), set(other), metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node writes another machine: %v", err)
	}
	if _, err := node.Update(t.Context(), set(own), metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node updates its machine: %v", err)
	}
	if err := node.Delete(t.Context(), "m1", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node deletes its machine: %v", err)
	}
	for _, release := range []string{"current", "../x", "a/b", "-x"} {
		chosen = machine("m3", v1alpha1.MachineSpec{Release: release})
		if _, err := admin.Create(t.Context(), chosen, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("release %q: %v", release, err)
		}
	}
}

// asUnstructured returns an object for the dynamic client.
func asUnstructured(t *testing.T, o any) *unstructured.Unstructured {
	t.Helper()
	data, err := json.Marshal(o)
	out := &unstructured.Unstructured{}
	if err == nil {
		err = json.Unmarshal(data, &out.Object)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
