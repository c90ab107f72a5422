// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/record"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/garbagecollector"
)

// world is an API server with namespaced and cluster-scoped kinds, and a dynamic client for all of
// them.
type world struct {
	*testing.T
	server *testserver.Server
	client dynamic.Interface
}

var (
	configMaps   = v1.SchemeGroupVersion.WithResource("configmaps")
	clusterRoles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	definitions  = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	kinds = map[schema.GroupVersionResource]string{configMaps: "ConfigMap", clusterRoles: "ClusterRole"}
)

func custom(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: plural}
}

// place is the resource, namespace and name of an object. The namespace of cluster-scoped objects
// is "".
type place struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

func (w *world) at(p place) dynamic.ResourceInterface {
	if p.namespace == "" {
		return w.client.Resource(p.resource)
	}
	return w.client.Resource(p.resource).Namespace(p.namespace)
}

// create creates an object. If its kind is not served yet, it waits for that.
func (w *world) create(p place, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	w.Helper()
	kind := kinds[p.resource]
	if kind == "" {
		kind = "Kind" + strings.TrimSuffix(p.resource.Resource, "s")
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(p.resource.GroupVersion().WithKind(kind))
	o.SetName(p.name)
	o.SetOwnerReferences(owners)
	var made *unstructured.Unstructured
	controllertest.Eventually(w.T, "create "+p.name, func(ctx context.Context) (any, bool) {
		var err error
		made, err = w.at(p).Create(ctx, o, metav1.CreateOptions{})
		return err, err == nil
	})
	return made
}

func (w *world) define(plural, scope string) {
	w.Helper()
	crd := &unstructured.Unstructured{}
	if err := crd.UnmarshalJSON(
		fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"%[1]s.example.com"},"spec":{"group":"example.com","scope":"%[2]s","names":{"plural":"%[1]s","kind":"Kind%[3]s"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`,
			plural, scope, strings.TrimSuffix(plural, "s"))); err != nil {
		w.Fatal(err)
	}
	if _, err := w.client.Resource(definitions).Create(w.Context(), crd, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) undefine(plural string) {
	w.Helper()
	p := place{definitions, "", plural + ".example.com"}
	w.delete(p, metav1.DeletePropagationBackground)
	w.gone(p)
}

func (w *world) delete(p place, policy metav1.DeletionPropagation) {
	w.Helper()
	if err := w.at(p).Delete(w.Context(), p.name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) gone(p place) {
	w.Helper()
	controllertest.Eventually(w.T, p.resource.Resource+" "+p.name+" is gone", func(ctx context.Context) (any, bool) {
		got, err := w.at(p).Get(ctx, p.name, metav1.GetOptions{})
		return got, apierrors.IsNotFound(err)
	})
}

// refer returns an owner reference to an object, modified by the given functions.
func refer(o *unstructured.Unstructured, change ...func(*metav1.OwnerReference)) metav1.OwnerReference {
	yes := true
	r := metav1.OwnerReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(),
		UID: o.GetUID(), BlockOwnerDeletion: &yes}
	for _, c := range change {
		c(&r)
	}
	return r
}

func wrongUID(r *metav1.OwnerReference)     { r.UID = types.UID("no-" + string(r.UID)) }
func wrongName(r *metav1.OwnerReference)    { r.Name = "no-" + r.Name }
func wrongKind(r *metav1.OwnerReference)    { r.APIVersion, r.Kind = "v1", "Secret" }
func wrongVersion(r *metav1.OwnerReference) { r.APIVersion += "beta7" }

// owners are the objects that the test cases refer to. The test deletes those whose field names end
// in Gone, with background propagation. The others remain.
type owners struct {
	space, spaceGone, elsewhere, elsewhereGone, cluster, clusterGone *unstructured.Unstructured
}

// outcome is what should happen to a dependent.
type outcome int

const (
	kept      outcome = iota // the dependent keeps all its references
	collected                // the dependent is deleted
	trimmed                  // the dependent keeps only its first reference
)

// scopeCases are combinations of owner references, each with the outcome for a namespaced and for a
// cluster-scoped dependent that have these references.
var scopeCases = map[string]struct {
	refs                func(o owners) []metav1.OwnerReference
	namespaced, cluster outcome
}{
	"namespaced owner": {func(o owners) []metav1.OwnerReference { return refs(refer(o.space)) }, kept, kept},
	"namespaced owner gone": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.spaceGone))
	}, collected, kept},
	"namespaced owner elsewhere": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.elsewhere))
	}, collected, kept},
	"owner gone elsewhere": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.elsewhereGone))
	}, collected, kept},
	"cluster owner": {func(o owners) []metav1.OwnerReference { return refs(refer(o.cluster)) },
		kept, kept},
	"cluster owner gone": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.clusterGone))
	}, collected, collected},
	"namespaced, wrong uid": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.space, wrongUID))
	}, collected, kept},
	"namespaced, wrong name": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.space, wrongName))
	}, collected, kept},
	"namespaced, wrong kind": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.space, wrongKind))
	}, collected, kept},
	"namespaced, unserved version": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.space, wrongVersion))
	}, kept, kept},
	"gone, unserved version": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.spaceGone, wrongVersion))
	}, kept, kept},
	"cluster, wrong uid": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.cluster, wrongUID))
	}, collected, collected},
	"cluster, wrong name": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.cluster, wrongName))
	}, collected, collected},
	"cluster, wrong kind": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.cluster, wrongKind))
	}, collected, kept},
	"cluster, unserved version": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.cluster, wrongVersion))
	}, kept, kept},
	"cluster gone, unserved": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.clusterGone, wrongVersion))
	}, kept, kept},
	"kind that never existed": {func(owners) []metav1.OwnerReference { return refs(never("a")) }, kept, kept},
	"both owners there": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.space), refer(o.cluster))
	}, kept, kept},
	"both owners gone": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.spaceGone), refer(o.clusterGone))
	}, collected, kept},
	"namespaced there, other gone": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.space), refer(o.clusterGone))
	}, trimmed, kept},
	"cluster there, other gone": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.cluster), refer(o.spaceGone))
	}, trimmed, kept},
	"cluster there, other misnamed": {func(o owners) []metav1.OwnerReference {
		return refs(refer(o.cluster), refer(o.elsewhere))
	}, trimmed, kept},
	"never existed and gone": {func(o owners) []metav1.OwnerReference {
		return refs(never("b"), refer(o.clusterGone))
	}, kept, kept},
}

func refs(r ...metav1.OwnerReference) []metav1.OwnerReference { return r }

func never(name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Never", Name: name, UID: types.UID("never-" + name)}
}

// TestScopes checks all scopeCases, once with owners that the collector has seen before they were
// deleted, and once with owners that were deleted before the collector started. The outcomes must
// be the same.
func TestScopes(t *testing.T) {
	for name, observed := range map[string]bool{"owners observed": true, "owners gone before the start": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if observed {
				w.collect()
			}
			o := w.owners()
			var want []func()
			for name, c := range scopeCases {
				dash := strings.NewReplacer(" ", "-", ",", "").Replace(name)
				for p, out := range map[place]outcome{
					{configMaps, "here", dash}:          c.namespaced,
					{clusterRoles, "", "scope-" + dash}: c.cluster,
				} {
					made := w.create(p, c.refs(o)...)
					want = append(want, func() { w.check(p, made, out) })
				}
			}
			for _, p := range []place{{configMaps, "here", "space-gone"},
				{configMaps, "elsewhere", "elsewhere-gone"}, {clusterRoles, "", "cluster-gone"}} {
				w.delete(p, metav1.DeletePropagationBackground)
			}
			if !observed {
				w.collect()
			}
			w.settle()
			for _, check := range want {
				check()
			}
		})
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := testserver.Start(t, testserver.Options{})
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, s, client}
	for _, ns := range []string{"here", "elsewhere"} {
		if _, err := s.Client.CoreV1().Namespaces().Create(t.Context(),
			&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// collect runs the garbage collector until the test ends and returns the events that it records.
func (w *world) collect() <-chan string {
	w.Helper()
	events := record.NewFakeRecorder(1000)
	controllertest.Run(w.T, w.server, controller.Options{}, func(d controller.Deps) (controller.Controller, error) {
		d.Events = events
		return garbagecollector.New(d)
	})
	return events.Events
}

func (w *world) owners() owners {
	w.Helper()
	return owners{
		space:         w.create(place{configMaps, "here", "space"}),
		spaceGone:     w.create(place{configMaps, "here", "space-gone"}),
		elsewhere:     w.create(place{configMaps, "elsewhere", "elsewhere"}),
		elsewhereGone: w.create(place{configMaps, "elsewhere", "elsewhere-gone"}),
		cluster:       w.create(place{clusterRoles, "", "cluster"}),
		clusterGone:   w.create(place{clusterRoles, "", "cluster-gone"}),
	}
}

// settle waits until the collector has handled all events up to now: twice it creates dependents of
// both scopes without an existing owner, and waits until they are collected.
func (w *world) settle() {
	w.Helper()
	for range 2 {
		for _, p := range []place{{configMaps, "here", "last"}, {clusterRoles, "", "last"}} {
			w.create(p, metav1.OwnerReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole",
				Name: "nothing", UID: "nothing"})
			w.gone(p)
		}
	}
}

func (w *world) check(p place, made *unstructured.Unstructured, want outcome) {
	w.Helper()
	if want == collected {
		w.gone(p)
		return
	}
	left := made.GetOwnerReferences()
	if want == trimmed {
		left = left[:1]
		controllertest.Eventually(w.T, p.name+" has one owner", func(ctx context.Context) (any, bool) {
			got, err := w.at(p).Get(ctx, p.name, metav1.GetOptions{})
			return got, err != nil || len(got.GetOwnerReferences()) == 1
		})
	}
	got, err := w.at(p).Get(w.Context(), p.name, metav1.GetOptions{})
	if err != nil || got.GetUID() != made.GetUID() || got.GetDeletionTimestamp() != nil {
		w.Errorf("%s %s: %v, want it kept", p.resource.Resource, p.name, err)
		return
	}
	if len(got.GetOwnerReferences()) != len(left) || got.GetOwnerReferences()[0].UID != left[0].UID {
		w.Errorf("%s %s: owners %+v, want %+v", p.resource.Resource, p.name, got.GetOwnerReferences(), left)
	}
}
