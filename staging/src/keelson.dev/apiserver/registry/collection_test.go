// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

// names returns the names of the stored objects in namespace "ns".
func names(t testing.TB, e *env) (list []string) {
	t.Helper()
	page, err := e.List(e.ctx, "ns", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range page.Records {
		list = append(list, strings.TrimPrefix(rec.Key, "ns/"))
	}
	return list
}

// TestDeleteCollection checks which objects a delete of a collection removes.
func TestDeleteCollection(t *testing.T) {
	fill := func(e *env) {
		for _, name := range []string{"a", "b", "kept", "other"} {
			c := configMap(name)
			c.Labels = map[string]string{"group": "one"}
			switch name {
			case "kept":
				c.Finalizers = []string{"a.b/c"}
			case "other":
				c.Labels = nil
			}
			create(t, e, c)
		}
	}
	for name, tc := range map[string]struct {
		options metav1.DeleteOptions
		list    metav1.ListOptions
		listed  int
		reason  metav1.StatusReason
		left    []string
	}{
		"all":   {listed: 4, left: []string{"kept"}},
		"label": {list: metav1.ListOptions{LabelSelector: "group=one"}, listed: 3, left: []string{"kept", "other"}},
		"field": {
			list: metav1.ListOptions{FieldSelector: "metadata.name=b"}, listed: 1, left: []string{"a", "kept", "other"},
		},
		"limit": {list: metav1.ListOptions{Limit: 2}, listed: 2, left: []string{"kept", "other"}},
		"dry run": {
			options: metav1.DeleteOptions{DryRun: []string{"All"}}, listed: 4, left: []string{"a", "b", "kept", "other"},
		},
		"invalid options": {
			options: policy("Sideways"), reason: metav1.StatusReasonInvalid, left: []string{"a", "b", "kept", "other"},
		},
		"invalid list": {
			list: metav1.ListOptions{LabelSelector: "!!"}, reason: metav1.StatusReasonBadRequest,
			left: []string{"a", "b", "kept", "other"},
		},
		"uid of one of them": {
			options: metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: new(types.UID("uid-1"))},
			}, list: metav1.ListOptions{FieldSelector: "metadata.name=b"},
			reason: metav1.StatusReasonConflict, left: []string{"a", "b", "kept", "other"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, configMaps())
			fill(e)
			page, err := e.DeleteCollection(e.ctx, "ns", tc.options, tc.list)
			wantError(t, err, tc.reason, "")
			if err == nil && len(page.Records) != tc.listed {
				t.Errorf("%d objects in the answer", len(page.Records))
			}
			sameStrings(t, "left", names(t, e), tc.left)
		})
	}
}

// TestDeleteManyPages deletes a collection that is larger than the pages in which it is listed,
// while another client removes some of the objects.
func TestDeleteManyPages(t *testing.T) {
	const objects = 1010
	var e *env
	e = newEnv(t, configMaps(), withAdmission(plugin{validate: func(_ context.Context, a admission.Attributes) error {
		if a.GetOperation() != admission.Delete {
			return nil
		}
		if a.GetName() != "" {
			return fmt.Errorf("the request names no object, but admission sees %s", a.GetName())
		}
		if a.GetOldObject().(*corev1.ConfigMap).Name == "c-0000" {
			if _, err := e.Store().Delete(e.ctx, "ns/c-0999", nil); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
		return nil
	}}))
	for i := range objects {
		create(t, e, configMap(fmt.Sprintf("c-%04d", i)))
	}
	page, err := e.DeleteCollection(e.ctx, "ns", metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil || len(page.Records) != objects || page.Continue != "" {
		t.Errorf("%v, %+v", err, page)
	}
	if left := names(t, e); left != nil {
		t.Errorf("left: %v", left)
	}
}

// TestDeleteCollectionFails checks that after the first error no further objects are deleted.
func TestDeleteCollectionFails(t *testing.T) {
	asked := make(chan struct{}, 100)
	e := newEnv(t, configMaps(), withAdmission(plugin{validate: func(_ context.Context, a admission.Attributes) error {
		if a.GetOperation() != admission.Delete {
			return nil
		}
		asked <- struct{}{}
		return admission.NewForbidden(a, errors.New("stay"))
	}}))
	for i := range 50 {
		create(t, e, configMap(fmt.Sprintf("c-%02d", i)))
	}
	_, err := e.DeleteCollection(e.ctx, "ns", metav1.DeleteOptions{}, metav1.ListOptions{})
	wantError(t, err, metav1.StatusReasonForbidden, "stay")
	if len(asked) == 50 || len(names(t, e)) != 50 {
		t.Errorf("%d deletes, %d objects left", len(asked), len(names(t, e)))
	}
}

// TestDeleteTogether checks that expiring objects are deleted at one revision, unless one of them
// has finalizers.
func TestDeleteTogether(t *testing.T) {
	for name, tc := range map[string]struct {
		finalizer bool
		left      []string
		together  bool
	}{"together": {together: true}, "one is kept": {finalizer: true, left: []string{"e-3"}}} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, events())
			first := ""
			for i := range 5 {
				ev := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("e-", i)}}
				if tc.finalizer && i == 3 {
					ev.Finalizers = []string{"a.b/c"}
				}
				first = create(t, e, ev).ResourceVersion
			}
			watch, err := e.Watch(e.ctx, "ns", metav1.ListOptions{ResourceVersion: first}, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer watch.Stop()
			if _, err := e.DeleteCollection(e.ctx, "ns", metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
			sameStrings(t, "left", names(t, e), tc.left)
			revisions := map[int64]bool{}
			for seen := 0; seen < 5; {
				list, err := watch.Next(e.ctx)
				if err != nil {
					t.Fatal(err)
				}
				for _, ev := range list {
					revisions[ev.Revision] = true
					seen++
				}
			}
			if (len(revisions) == 1) != tc.together {
				t.Errorf("revisions %v", revisions)
			}
		})
	}
	e := newEnv(t, events())
	create(t, e, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}})
	_, err := e.DeleteCollection(
		e.ctx, "ns", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID("x"))}},
		metav1.ListOptions{},
	)
	wantError(t, err, metav1.StatusReasonConflict, "")
	_, err = e.DeleteCollection(e.ctx, "ns", policy("Sideways"), metav1.ListOptions{})
	wantError(t, err, metav1.StatusReasonInvalid, "")
}

// TestList checks which objects selectors select, and which selectors are rejected.
func TestList(t *testing.T) {
	rows := map[string]*resource.Row{
		"pods": pods(), "configmaps": configMaps(), "namespaces": namespaces(), "widgets": widgets(),
		"worded": configMaps(func(k *resource.Kind[*corev1.ConfigMap]) {
			k.SelectableFields, k.UnknownField = []string{"data"}, "field label %[1]q not supported here"
		}),
	}
	for name, tc := range map[string]struct {
		row    string
		list   metav1.ListOptions
		reason metav1.StatusReason
		text   string
		names  string
	}{
		"all":   {row: "pods", names: "a b"},
		"label": {row: "pods", list: metav1.ListOptions{LabelSelector: "on=a"}, names: "a"},
		"empty selectors": {
			row: "pods", list: metav1.ListOptions{LabelSelector: " ", FieldSelector: ","}, names: "a b",
		},
		"node":      {row: "pods", list: metav1.ListOptions{FieldSelector: "spec.nodeName=b"}, names: "b"},
		"namespace": {row: "pods", list: metav1.ListOptions{FieldSelector: "metadata.namespace!=ns"}},
		"name at a revision": {
			row: "pods", list: metav1.ListOptions{FieldSelector: "metadata.name=b", ResourceVersion: "last", Limit: 1},
			names: "b",
		},
		"name in a namespace": {
			row:   "pods",
			list:  metav1.ListOptions{FieldSelector: "metadata.name=b,metadata.namespace=ns", ResourceVersion: "last", Limit: 1},
			names: "b",
		},
		"cluster-scoped name": {
			row: "namespaces", list: metav1.ListOptions{FieldSelector: "metadata.name=b", ResourceVersion: "last"}, names: "b",
		},
		"custom field": {row: "widgets", list: metav1.ListOptions{FieldSelector: "spec.color=a"}, names: "a"},
		"invalid label selector": {
			row: "pods", list: metav1.ListOptions{LabelSelector: "!!"}, reason: metav1.StatusReasonBadRequest,
			text: "unable to parse requirement",
		},
		"invalid field selector": {
			row: "pods", list: metav1.ListOptions{FieldSelector: "a"}, reason: metav1.StatusReasonBadRequest,
			text: "invalid selector",
		},
		"unknown field": {
			row: "pods", list: metav1.ListOptions{FieldSelector: "a=b"}, reason: metav1.StatusReasonBadRequest,
			text: "field label not supported: a",
		},
		"unknown field, plain": {
			row: "configmaps", list: metav1.ListOptions{FieldSelector: "a=b"}, reason: metav1.StatusReasonBadRequest,
			text: `"a" is not a known field selector: only "metadata.name", "metadata.namespace"`,
		},
		"unknown field, custom": {
			row: "widgets", list: metav1.ListOptions{FieldSelector: "a=b"}, reason: metav1.StatusReasonBadRequest,
			text: "field label not supported: a",
		},
		"unknown field, reworded": {
			row: "worded", list: metav1.ListOptions{FieldSelector: "a=b"}, reason: metav1.StatusReasonBadRequest,
			text: `field label "a" not supported here`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, rows[tc.row])
			last := ""
			for _, n := range []string{"a", "b"} {
				obj := e.Row().New()
				switch e.Row().Resource {
				case "pods":
					p := pod(n)
					p.Spec.NodeName = n
					obj = p
				case "widgets":
					obj = widget(n, n)
				}
				obj.SetName(n)
				obj.SetLabels(map[string]string{"on": n})
				last = create(t, e, obj).GetResourceVersion()
			}
			if tc.list.ResourceVersion != "" {
				tc.list.ResourceVersion = last
			}
			namespace := "ns"
			if strings.Contains(tc.list.FieldSelector, "metadata.namespace=") {
				namespace = ""
			}
			page, err := e.List(e.ctx, namespace, tc.list)
			wantError(t, err, tc.reason, tc.text)
			if err == nil {
				var got []string
				for _, rec := range page.Records {
					got = append(got, rec.Key[strings.LastIndex(rec.Key, "/")+1:])
				}
				if strings.Join(got, " ") != tc.names {
					t.Errorf("got %v", got)
				}
			}
			watch, err := e.Watch(
				e.ctx, namespace, metav1.ListOptions{LabelSelector: tc.list.LabelSelector, FieldSelector: tc.list.FieldSelector},
				0,
			)
			wantError(t, err, tc.reason, tc.text)
			if err == nil {
				watch.Stop()
			}
		})
	}
}

// TestWatch watches a pod from its creation until it is removed.
func TestWatch(t *testing.T) {
	e := newEnv(t, pods())
	watch, err := e.Watch(e.ctx, "ns", metav1.ListOptions{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	create(t, e, pod("p"))
	if _, _, err := e.Delete(e.ctx, "ns", "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, gone, err := e.Delete(e.ctx, "ns", "p", grace(0)); !gone || err != nil {
		t.Fatal(gone, err)
	}
	var seen []store.Event
	for len(seen) < 3 {
		list, err := watch.Next(e.ctx)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, slices.Clone(list)...)
	}
	last, err := seen[2].Record.Object()
	if err != nil {
		t.Fatal(err)
	}
	// The pod is removed in one write. In its last state, the grace period is 0, as if that had
	// been stored first.
	if period := last.GetDeletionGracePeriodSeconds(); period == nil || *period != 0 {
		t.Errorf("grace period in the last state: %v", period)
	}
}
