// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector_test

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/garbagecollector"
)

// house is a namespace in which the tests create ConfigMaps that own each other.
type house struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
}

func newHouse(t *testing.T, s *testserver.Server, namespace string) *house {
	t.Helper()
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := s.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &house{t, s.Client, namespace}
}

func owned(by *v1.ConfigMap, blocks bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: by.Name, UID: by.UID,
		BlockOwnerDeletion: &blocks}
}

func (h *house) create(name string, owners ...metav1.OwnerReference) *v1.ConfigMap {
	h.Helper()
	cm := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
	got, err := h.client.CoreV1().ConfigMaps(h.namespace).Create(h.Context(), cm, metav1.CreateOptions{})
	if err != nil {
		h.Fatal(err)
	}
	return got
}

func (h *house) delete(name string, policy metav1.DeletionPropagation) {
	h.Helper()
	if err := h.client.CoreV1().ConfigMaps(h.namespace).Delete(h.Context(), name,
		metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		h.Fatal(err)
	}
}

func (h *house) gone(name string) {
	h.Helper()
	controllertest.Eventually(h.T, name+" is gone", func(ctx context.Context) (any, bool) {
		got, err := h.client.CoreV1().ConfigMaps(h.namespace).Get(ctx, name, metav1.GetOptions{})
		return got, apierrors.IsNotFound(err)
	})
}

func (h *house) there(name string) *v1.ConfigMap {
	h.Helper()
	got, err := h.client.CoreV1().ConfigMaps(h.namespace).Get(h.Context(), name, metav1.GetOptions{})
	if err != nil {
		h.Fatal(err)
	}
	return got
}

func TestCollection(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Run(t, s, controller.Options{}, garbagecollector.New)

	t.Run("background", func(t *testing.T) {
		h := newHouse(t, s, "background")
		top := h.create("top")
		middle := h.create("middle", owned(top, true))
		h.create("bottom", owned(middle, true))
		other := h.create("other")
		h.create("shared", owned(top, true), owned(other, true))
		h.delete("top", metav1.DeletePropagationBackground)
		h.gone("middle")
		h.gone("bottom")
		controllertest.Eventually(t, "the other owner is left", func(context.Context) (any, bool) {
			refs := h.there("shared").OwnerReferences
			return refs, len(refs) == 1 && refs[0].UID == other.UID
		})
	})
	t.Run("foreground", func(t *testing.T) {
		h := newHouse(t, s, "foreground")
		top := h.create("top")
		held := h.create("held", owned(top, true))
		held.Finalizers = []string{"example.com/hold"}
		if _, err := s.Client.CoreV1().ConfigMaps(h.namespace).Update(t.Context(), held, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		h.create("free", owned(top, false))
		h.delete("top", metav1.DeletePropagationForeground)
		h.gone("free")
		controllertest.Eventually(t, "what blocks is being deleted", func(context.Context) (any, bool) {
			d := h.there("held").DeletionTimestamp
			return d, d != nil
		})
		h.there("top")
		if _, err := s.Client.CoreV1().ConfigMaps(h.namespace).Patch(t.Context(), "held", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		h.gone("top")
	})
	t.Run("orphans", func(t *testing.T) {
		h := newHouse(t, s, "orphans")
		h.create("child", owned(h.create("top"), true))
		h.delete("top", metav1.DeletePropagationOrphan)
		h.gone("top")
		if refs := h.there("child").OwnerReferences; len(refs) > 0 {
			t.Errorf("owners %v", refs)
		}
	})
	t.Run("circle", func(t *testing.T) {
		h := newHouse(t, s, "circle")
		a := h.create("a")
		b := h.create("b", owned(a, true))
		a.OwnerReferences = []metav1.OwnerReference{owned(b, true)}
		if _, err := s.Client.CoreV1().ConfigMaps(h.namespace).Update(t.Context(), a, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		h.delete("a", metav1.DeletePropagationForeground)
		h.gone("a")
		h.gone("b")
	})
	t.Run("owner in another namespace", func(t *testing.T) {
		h, other := newHouse(t, s, "here"), newHouse(t, s, "there")
		top := other.create("top")
		right := other.create("right", owned(top, true))
		h.create("wrong", owned(top, true)) // the owner is in another namespace, which is not allowed
		h.gone("wrong")
		other.there("top")
		other.delete("top", metav1.DeletePropagationBackground)
		other.gone(right.Name)
	})
}
