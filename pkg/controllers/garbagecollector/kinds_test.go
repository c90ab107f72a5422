// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector_test

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// family is a test case: an owner for which one namespaced and one cluster-scoped dependent are
// created, and the expected outcome for each.
type family struct {
	name                string
	owner               *unstructured.Unstructured
	namespaced, cluster outcome
}

func (w *world) dependents(f family) (check func()) {
	w.Helper()
	in, wide := place{configMaps, "here", f.name}, place{clusterRoles, "", "scope-" + f.name}
	one, two := w.create(in, refer(f.owner)), w.create(wide, refer(f.owner))
	return func() {
		w.Helper()
		w.check(in, one, f.namespaced)
		w.check(wide, two, f.cluster)
	}
}

// TestKinds checks what happens to dependents when kinds of owners are removed, added, or change
// their scope while the collector runs.
func TestKinds(t *testing.T) {
	w := newWorld(t)
	owners := map[string]*unstructured.Unstructured{}
	for plural, scope := range map[string]string{"widgets": "Namespaced", "gadgets": "Namespaced",
		"sprockets": "Cluster"} {
		w.define(plural, scope)
		p := place{custom(plural), map[string]string{"Namespaced": "here"}[scope], "owner"}
		owners[plural] = w.create(p) // create also waits until the kind is served
	}
	w.collect()
	removed := w.dependents(family{"removed", owners["widgets"], collected, kept})
	gadget := w.dependents(family{"gadget", owners["gadgets"], collected, collected})
	sprocket := w.dependents(family{"sprocket", owners["sprockets"], collected, collected})
	later := &unstructured.Unstructured{}
	later.SetAPIVersion("example.com/v1")
	later.SetKind("Kindlater")
	later.SetName("later")
	later.SetUID("later")
	unknown := w.dependents(family{"later", later, collected, kept})
	w.settle() // after this, the collector has seen all objects and has deleted none
	// Delete an owner, wait until the collector has processed the deletion, and then remove the owner's
	// kind, after which the result must be the same. Without the wait, the watch could end before it
	// reports the deletion; the collector would then never learn of it, as in Kubernetes.
	w.delete(place{custom("widgets"), "here", "owner"}, metav1.DeletePropagationBackground)
	removed()
	for _, plural := range []string{"widgets", "gadgets", "sprockets"} {
		w.undefine(plural)
	}
	removed()
	w.define("laters", "Namespaced")
	w.define("gadgets", "Cluster")
	w.define("sprockets", "Namespaced")
	widened := w.dependents(family{"widened", w.create(place{custom("gadgets"), "", "owner"}), kept, kept})
	narrowed := w.dependents(family{"narrowed", w.create(place{custom("sprockets"), "here", "owner"}), kept, kept})
	unknown()
	gadget()
	sprocket()
	w.settle()
	removed()
	widened()
	narrowed()
	// Owners with a changed scope are handled like any other owners.
	w.delete(place{custom("gadgets"), "", "owner"}, metav1.DeletePropagationForeground)
	w.gone(place{configMaps, "here", "widened"})
	w.gone(place{clusterRoles, "", "scope-widened"})
	w.delete(place{custom("sprockets"), "here", "owner"}, metav1.DeletePropagationBackground)
	w.gone(place{configMaps, "here", "narrowed"})
}

// TestPropagation checks what happens to dependents when their owner is deleted with each
// propagation policy. Some dependents cannot resolve their reference to the owner because of their
// scope.
func TestPropagation(t *testing.T) {
	w := newWorld(t)
	events := w.collect()
	at := func(p place) *unstructured.Unstructured { return w.create(p) }
	hold := func(p place, finalizers string) {
		w.Helper()
		body := []byte(`{"metadata":{"finalizers":` + finalizers + `}}`)
		if _, err := w.at(p).Patch(w.Context(), p.name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
			w.Fatal(err)
		}
	}

	// Foreground: a namespaced owner waits only for dependents in its own namespace.
	fore := place{configMaps, "here", "fore"}
	owner := at(fore)
	stays := w.dependents(family{"fore-child", owner, collected, kept})
	other := place{configMaps, "elsewhere", "fore-other"}
	w.create(place{configMaps, "elsewhere", "other-owner"})
	w.create(other, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other-owner",
		UID: ownerUID(w, "other-owner")})
	hold(other, `["example.com/hold"]`)
	body := `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"fore","uid":"` +
		string(owner.GetUID()) + `","blockOwnerDeletion":true}]}}`
	if _, err := w.at(other).Patch(w.Context(), other.name, types.MergePatchType, []byte(body),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.delete(fore, metav1.DeletePropagationForeground)
	w.gone(fore)
	stays()
	hold(other, `null`)
	w.gone(other)

	// Orphaning: the references are removed from all dependents that the collector has seen.
	orphans := place{configMaps, "here", "orphans"}
	owner = at(orphans)
	w.dependents(family{"orphan", owner, kept, kept})
	w.settle()
	w.delete(orphans, metav1.DeletePropagationOrphan)
	w.gone(orphans)
	for _, p := range []place{{configMaps, "here", "orphan"}, {clusterRoles, "", "scope-orphan"}} {
		got, err := w.at(p).Get(t.Context(), p.name, metav1.GetOptions{})
		if err != nil || len(got.GetOwnerReferences()) > 0 {
			t.Errorf("%s: %v, %v", p.name, got, err)
		}
	}

	// Foreground: a cluster-scoped owner waits for a dependent that also has an unresolvable owner,
	// until the owner references are removed.
	wide := place{clusterRoles, "", "wide"}
	owner = at(wide)
	all := w.dependents(family{"wide-child", owner, collected, collected})
	space := at(place{configMaps, "here", "space"})
	mixed := place{clusterRoles, "", "mixed"}
	made := w.create(mixed, refer(space), refer(owner))
	w.delete(wide, metav1.DeletePropagationForeground)
	all()
	w.settle()
	w.check(mixed, made, kept)
	if got, err := w.at(wide).Get(t.Context(), wide.name, metav1.GetOptions{}); err != nil ||
		got.GetDeletionTimestamp() == nil {
		t.Errorf("owner with a blocking dependent: %v, %v", got, err)
	}
	want := `Warning OwnerRefInvalidNamespace ownerRef [v1/ConfigMap, namespace: , name: space, uid: ` +
		string(space.GetUID()) + `] does not exist in namespace ""`
	controllertest.Eventually(t, want, func(ctx context.Context) (any, bool) {
		select {
		case e := <-events:
			return e, strings.HasPrefix(e, want)
		default:
			return "", false
		}
	})
	if _, err := w.at(mixed).Patch(t.Context(), mixed.name, types.MergePatchType,
		[]byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.gone(wide)
}

func ownerUID(w *world, name string) types.UID {
	w.Helper()
	got, err := w.server.Client.CoreV1().ConfigMaps("elsewhere").Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return got.UID
}
