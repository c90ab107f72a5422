// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/kubernetes/test/integration/etcd"
)

// namespace is the namespace of upstream's examples. The namespace limits has the examples that limit
// which other objects their namespace may contain.
const (
	namespace = "examples"
	limits    = "limits"
)

// definitionsResource is the resource of CustomResourceDefinitions.
var definitionsResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// olderRequests are PodCertificateRequests in the version whose example has fields that Keelson does
// not have, see docs/explanation/differences.md.
var olderRequests = schema.GroupVersionResource{
	Group: "certificates.k8s.io", Version: "v1beta1", Resource: "podcertificaterequests",
}

// resource is a served version of a resource.
type resource struct {
	schema.GroupVersionResource
	kind       string
	namespaced bool
	verbs      []string
	status     bool // whether there is a subresource status
}

// resources returns what a server serves: all resources that clients can create, get and list.
func (v *server) resources(t *testing.T) map[schema.GroupVersionResource]resource {
	t.Helper()
	_, lists, err := v.client.Discovery().ServerGroupsAndResources()
	// Discovery fails for the group of upstream's example of an APIService, because nothing serves it.
	if failed := (&discovery.ErrGroupDiscoveryFailed{}); errors.As(err, &failed) && len(failed.Groups) == 1 {
		if _, ok := failed.Groups[schema.GroupVersion{Group: "foo.com", Version: "as2"}]; ok {
			err = nil
		}
	}
	if err != nil {
		t.Fatalf("%s: discovery: %v", v.name, err)
	}
	all := map[schema.GroupVersionResource]resource{}
	var status []schema.GroupVersionResource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			name, sub, _ := strings.Cut(r.Name, "/")
			switch gvr := gv.WithResource(name); {
			case sub == "status":
				status = append(status, gvr)
			case sub == "" && slices.Contains(r.Verbs, "create") && slices.Contains(r.Verbs, "list"):
				all[gvr] = resource{GroupVersionResource: gvr, kind: r.Kind, namespaced: r.Namespaced, verbs: r.Verbs}
			}
		}
	}
	for _, gvr := range status {
		if r, ok := all[gvr]; ok {
			r.status = true
			all[gvr] = r
		}
	}
	return all
}

// example is an object that a test creates.
type example struct {
	resource
	object *unstructured.Unstructured
	status string // a patch of its status
}

// id identifies the example.
func (e example) id() id {
	return id{e.GroupVersionResource, e.object.GetNamespace(), e.object.GetName()}
}

// on returns a client for the example's namespace.
func (e example) on(v *server) dynamic.ResourceInterface {
	return v.dynamic.Resource(e.GroupVersionResource).Namespace(e.object.GetNamespace())
}

// create creates the example with its status.
func (e example) create(ctx context.Context, v *server) error {
	_, err := e.on(v).Create(ctx, e.object, metav1.CreateOptions{FieldManager: "stores"})
	if err != nil {
		return fmt.Errorf("create %s: %w", e.id(), err)
	}
	if !e.resource.status || e.status == "" {
		return nil
	}
	_, err = e.on(v).Patch(ctx, e.object.GetName(), types.MergePatchType, []byte(e.status),
		metav1.PatchOptions{FieldManager: "stores"}, "status")
	if err != nil {
		return fmt.Errorf("patch status of %s: %w", e.id(), err)
	}
	return nil
}

// named returns a copy with another name, or false if the kind has rules for names.
func (e example) named(suffix string) (example, bool) {
	switch e.Resource {
	case "customresourcedefinitions", "apiservices", "ipaddresses", "storageversions":
		return e, false
	}
	e.object = e.object.DeepCopy()
	e.object.SetName(e.object.GetName() + suffix)
	return e, true
}

// examples returns upstream's examples for a release, of the resources that a server serves. It
// first creates the definitions of custom resources.
func examples(t *testing.T, v *server, r release) []example {
	t.Helper()
	definitions(t, v)
	for _, name := range []string{namespace, limits} {
		create(t, v, "namespaces", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": %q}}`, name))
		// Pods need this account, and the controller that would create it does not run.
		create(t, v, "serviceaccounts", fmt.Sprintf(
			`{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": %q}}`, name))
	}
	var result []example
	served := v.resources(t)
	data := etcd.GetEtcdStorageDataForNamespaceServedAt(namespace, string(r), false)
	for _, gvr := range slices.SortedFunc(maps.Keys(data), func(a, b schema.GroupVersionResource) int {
		return strings.Compare(a.String(), b.String())
	}) {
		res, ok := served[gvr]
		if !ok || gvr == olderRequests {
			continue
		}
		for _, p := range data[gvr].Prerequisites {
			result = append(result, parse(t, served[p.GvrData], p.Stub))
		}
		e := parse(t, res, data[gvr].Stub)
		if gvr.Resource != "customresourcedefinitions" { // the server itself writes their status
			e.status = data[gvr].GetStatusStub()
		}
		result = append(result, e)
	}
	for gvr := range served {
		if _, ok := data[gvr]; !ok {
			t.Errorf("no example of %s", gvr)
		}
	}
	t.Logf("%s: %d resources and versions", v.name, len(result))
	return result
}

// parse returns an example from upstream's JSON.
func parse(t *testing.T, r resource, stub string) example {
	t.Helper()
	e := example{resource: r, object: &unstructured.Unstructured{}}
	if err := json.Unmarshal([]byte(stub), &e.object.Object); err != nil {
		t.Fatalf("example of %s: %v", r, err)
	}
	e.object.SetGroupVersionKind(r.GroupVersion().WithKind(r.kind))
	if r.namespaced {
		e.object.SetNamespace(namespace)
		if r.Resource == "resourcequotas" || r.Resource == "limitranges" {
			e.object.SetNamespace(limits)
		}
	}
	return e
}

// definitions creates upstream's CustomResourceDefinitions.
func definitions(t *testing.T, v *server) {
	t.Helper()
	for _, d := range etcd.GetCustomResourceDefinitionData() {
		d.APIVersion, d.Kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		if err != nil {
			t.Fatal(err)
		}
		_, err = v.dynamic.Resource(definitionsResource).Create(t.Context(),
			&unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		group, version := d.Spec.Group, d.Spec.Versions[0].Name
		custom := schema.GroupVersionResource{Group: group, Version: version, Resource: d.Spec.Names.Plural}
		err = wait.PollUntilContextTimeout(t.Context(), poll, readyTimeout, true, func(ctx context.Context) (bool, error) {
			list, err := v.client.Discovery().ServerResourcesForGroupVersion(custom.GroupVersion().String())
			return err == nil && len(list.APIResources) > 0, nil
		})
		if err != nil {
			t.Fatalf("%s is not served: %v", custom, err)
		}
	}
}

// create creates an object from JSON and returns the answer. name is the name of the resource.
func create(t *testing.T, v *server, name, object string) *unstructured.Unstructured {
	t.Helper()
	o, err := tryCreate(t, v, name, object)
	if err != nil {
		t.Fatalf("%s: create %s %s: %v", v.name, name, object, err)
	}
	return o
}

// tryCreate is like create, but returns the server's error.
func tryCreate(t *testing.T, v *server, name, object string) (*unstructured.Unstructured, error) {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(object), &o.Object); err != nil {
		t.Fatal(err)
	}
	gvr := o.GroupVersionKind().GroupVersion().WithResource(name)
	return v.dynamic.Resource(gvr).Namespace(o.GetNamespace()).Create(t.Context(), o,
		metav1.CreateOptions{FieldManager: "stores"})
}

// id identifies an object in one of the versions in which it is served.
type id struct {
	schema.GroupVersionResource
	namespace, name string
}

// String returns the path of the object.
func (i id) String() string {
	return strings.Join([]string{i.Group, i.Version, i.Resource, i.namespace, i.name}, "/")
}

// snapshot gets every object in every version that the server serves.
func (v *server) snapshot(t *testing.T) map[id]map[string]any {
	t.Helper()
	all := map[id]map[string]any{}
	v.served = v.resources(t)
	for gvr, r := range v.served {
		list, err := v.dynamic.Resource(gvr).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Errorf("%s: list %s: %v", v.name, gvr, err)
			continue
		}
		for _, item := range list.Items {
			i := id{gvr, item.GetNamespace(), item.GetName()}
			if !r.namespaced {
				i.namespace = "" // upstream's serialized objects all have a namespace
			}
			o, err := v.dynamic.Resource(gvr).Namespace(i.namespace).Get(t.Context(), i.name, metav1.GetOptions{})
			if err != nil {
				t.Errorf("%s: get %s: %v", v.name, i, err)
				continue
			}
			all[i] = o.Object
		}
	}
	return all
}

// gone waits until a deleted object no longer exists or only its finalizers keep it. It reports whether
// the object no longer exists.
func (e example) gone(t *testing.T, v *server) bool {
	t.Helper()
	gone := false
	err := wait.PollUntilContextTimeout(t.Context(), poll, readyTimeout, true, func(ctx context.Context) (bool, error) {
		o, err := e.on(v).Get(ctx, e.object.GetName(), metav1.GetOptions{})
		gone = apierrors.IsNotFound(err)
		if gone || err != nil {
			return gone, nil
		}
		return o.GetDeletionTimestamp() != nil, nil
	})
	if err != nil {
		t.Errorf("%s: %s is not deleted: %v", v.name, e.id(), err)
	}
	return gone
}
