// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// TestStore opens the store of a kube-apiserver with Keelson, changes it, and opens it with a
// kube-apiserver again.
func TestStore(t *testing.T) {
	needPrograms(t)
	tests := map[string]struct {
		from, to release
		args     []string // of Keelson
	}{
		"1.37": {v137, v137, nil},
		// An upgrade from Kubernetes 1.36: Keelson takes the place of kube-apiserver 1.37.
		"1.36-to-1.37": {v136, v137, nil},
		// kube-apiserver 1.36 can read what Keelson has written only if Keelson emulated 1.36.
		"1.36-emulated": {v136, v136, []string{"--emulated-version=1.36"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, services := newStore(t), newAllocations()
			beta := "--runtime-config=api/beta=true"

			kube := s.kubernetes(t, tt.from, beta)
			all := examples(t, kube, tt.from)
			second := fill(t, kube, all)
			services.check(t, kube)
			applyFirst(t, kube)
			bearer := issue(t, kube)
			s.checkEncoding(t, kube)
			volatile := rewrite(t, kube, all)
			before := kube.snapshot(t)
			kube.end(t)

			keelson := s.keelson(t, append(tt.args, beta)...)
			after := keelson.snapshot(t)
			compare(t, kube, keelson, before, after)
			accept(t, keelson, bearer)
			all, second = served(after, all), served(after, second)
			for i := range rewrite(t, keelson, all) {
				if !volatile[i] && !newFields(kube, keelson, i) && !newVersion(kube, keelson, i) {
					t.Errorf("Keelson stores %s again, which it should not change", i)
				}
			}
			switchVersion(t, keelson)
			annotate(t, keelson, all)
			recreate(t, keelson, second)
			services.check(t, keelson)
			applySecond(t, keelson)
			bearer = issue(t, keelson)
			s.checkEncoding(t, keelson)
			before = keelson.snapshot(t)
			keelson.end(t)

			kube = s.kubernetes(t, tt.to, beta)
			compare(t, keelson, kube, before, kube.snapshot(t))
			accept(t, kube, bearer)
			for i := range rewrite(t, kube, all) {
				if !volatile[i] && !newFields(keelson, kube, i) && !newVersion(keelson, kube, i) {
					t.Errorf("kube-apiserver stores %s again, which Keelson has written", i)
				}
			}
			annotate(t, kube, all)
			recreate(t, kube, second)
			services.check(t, kube)
			applyThird(t, kube)
			s.checkEncoding(t, kube)
			kube.end(t)
		})
	}
}

// served returns the examples that are in a snapshot.
func served(snapshot map[id]map[string]any, all []example) []example {
	return slices.DeleteFunc(slices.Clone(all), func(e example) bool { return snapshot[e.id()] == nil })
}

// fill creates the examples, and a second object of each kind that allows any name.
func fill(t *testing.T, v *server, all []example) (second []example) {
	t.Helper()
	for _, e := range all {
		if err := e.create(t.Context(), v); err != nil {
			t.Errorf("%s: %v", v.name, err)
			continue
		}
		if e, ok := e.named("-2"); ok {
			if err := e.create(t.Context(), v); err != nil {
				t.Errorf("%s: %v", v.name, err)
			}
			second = append(second, e)
		}
	}
	return second
}

// recreate deletes the examples, and creates each one again unless its finalizers keep the old one.
func recreate(t *testing.T, v *server, all []example) {
	t.Helper()
	for _, e := range all {
		err := e.on(v).Delete(t.Context(), e.object.GetName(), metav1.DeleteOptions{})
		if err != nil {
			t.Errorf("%s: delete %s: %v", v.name, e.id(), err)
			continue
		}
		if !e.gone(t, v) {
			continue
		}
		if err := e.create(t.Context(), v); err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
	}
}

// fixed reports whether the test cannot update the objects of a resource. It cannot update
// ControllerRevisions: servers reject a change of any byte of their data, and both the test's client
// and a patch change the order of the members of this JSON.
func fixed(e example) bool { return e.Resource == "controllerrevisions" }

// rewrite updates each example without a change, and returns the examples whose resource version
// changes. A server writes nothing to etcd if the encoded object equals the stored bytes. So all
// other examples have the same encoding as in the server that stored them.
func rewrite(t *testing.T, v *server, all []example) map[id]bool {
	t.Helper()
	again := map[id]bool{}
	for _, e := range all {
		if fixed(e) {
			continue
		}
		o, err := e.on(v).Get(t.Context(), e.object.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Errorf("%s: get %s: %v", v.name, e.id(), err)
			continue
		}
		before := o.GetResourceVersion()
		o, err = e.on(v).Update(t.Context(), o, metav1.UpdateOptions{FieldManager: "stores"})
		if err != nil {
			t.Errorf("%s: update %s: %v", v.name, e.id(), err)
			continue
		}
		if o.GetResourceVersion() != before {
			again[e.id()] = true
		}
	}
	t.Logf("%s: %d of %d objects are stored again when they are written without a change", v.name, len(again), len(all))
	return again
}

// annotate sets an annotation of each example.
func annotate(t *testing.T, v *server, all []example) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"annotations": {"stores.example.com/by": %q}}}`, v.name)
	for _, e := range all {
		if fixed(e) {
			continue
		}
		_, err := e.on(v).Patch(t.Context(), e.object.GetName(), types.MergePatchType, []byte(patch),
			metav1.PatchOptions{FieldManager: "stores-2"})
		if err != nil {
			t.Errorf("%s: patch %s: %v", v.name, e.id(), err)
		}
	}
}

// compare checks that the second server gave the same answers as the first one, except for
// differences for which the function exemption has a reason.
func compare(t *testing.T, first, second *server, before, after map[id]map[string]any) {
	t.Helper()
	same, exempt := 0, map[string]int{}
	has, had := second.served, first.served
	for _, i := range slices.SortedFunc(maps.Keys(before), func(a, b id) int {
		return strings.Compare(a.String(), b.String())
	}) {
		want, got := before[i], after[i]
		_, ok := has[i.GroupVersionResource]
		switch diff := cmp.Diff(want, got); {
		case diff == "":
			same++
		case !ok:
			exempt["not served in this version: "+i.GroupVersionResource.String()]++
		default:
			reason := exemption(first, second, i, want, got)
			if reason == "" {
				t.Errorf("%s has changed (-%s +%s):\n%s", i, first.name, second.name, diff)
			}
			exempt[reason]++
		}
	}
	for i, got := range after {
		if _, ok := had[i.GroupVersionResource]; !ok || before[i] != nil {
			continue
		}
		reason := exemption(first, second, i, nil, got)
		if reason == "" {
			t.Errorf("%s has %s, %s has not", second.name, i, first.name)
		}
		exempt[reason]++
	}
	t.Logf("%s answers as %s: %d objects and versions are equal", second.name, first.name, same)
	for _, reason := range slices.Sorted(maps.Keys(exempt)) {
		t.Logf("%s: %d are different: %s", second.name, exempt[reason], reason)
	}
}

// exemption returns the reason why two servers may answer differently for an object, or "" if there is
// none. want is the answer of the first server and got that of the second. An answer is nil if the
// server does not have the object.
func exemption(first, second *server, i id, want, got map[string]any) string {
	object := unstructured.Unstructured{Object: want}
	if want == nil {
		object.Object = got
	}
	labels := object.GetLabels()
	switch {
	case i.namespace == "default" && i.name == "kubernetes" && strings.HasPrefix(i.Resource, "endpoint"):
		return "a server removes itself from the endpoints of the Service kubernetes when it stops"
	case i.Resource == "leases" && i.namespace == "kube-system":
		return "each server has a Lease of its own"
	case labels["kube-aggregator.kubernetes.io/automanaged"] == "onstart" && (want == nil || got == nil):
		return "a server has APIServices of the versions that it serves"
	case labels["kubernetes.io/bootstrapping"] == "rbac-defaults" && includes(got["rules"], want["rules"]):
		return "a server adds the rights of its own components"
	case i.GroupVersionResource == olderRequests && want != nil && got != nil:
		return "Keelson does not have the fields of v1beta1 that Kubernetes has replaced"
	case want != nil && got != nil && newFields(first, second, i):
		return "Kubernetes 1.37 has added a field, or a default of a field"
	}
	return ""
}

// newFields reports whether the second server may store a resource with other fields than the first
// one, because their releases of Kubernetes differ: 1.37 adds the default of a field, or a struct that
// is always stored.
func newFields(first, second *server, i id) bool {
	if first.release == second.release {
		return false
	}
	upgraded := second.release == v137 && !second.emulates
	return i.Resource == "csinodes" || upgraded && (i.Resource == "statefulsets" || i.Resource == "csidrivers")
}

// newVersion reports whether Kubernetes 1.36 and 1.37 store a resource in different versions.
func newVersion(first, second *server, i id) bool {
	if first.release == second.release {
		return false
	}
	switch i.Resource {
	case "mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "devicetaintrules":
		return true
	}
	return false
}

// includes reports whether all elements of a list are in another one.
func includes(list, all any) bool {
	have, _ := list.([]any)
	want, _ := all.([]any)
	return !slices.ContainsFunc(want, func(w any) bool {
		return !slices.ContainsFunc(have, func(h any) bool { return cmp.Equal(w, h) })
	})
}
