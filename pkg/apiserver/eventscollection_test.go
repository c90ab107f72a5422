// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"keelson.dev/apiserver/store/kv"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestEventsOfNoCache checks the errors of event reads. Kubernetes has no watch cache for events,
// so some errors have other texts than for other resources.
func TestEventsOfNoCache(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	ctx, events := t.Context(), s.Client.CoreV1().Events("default")
	for _, name := range []string{"a", "b"} {
		_, err := events.Create(ctx, &v1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name},
			InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p"}, Reason: "Tested",
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	page, err := events.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	token, err := base64.RawURLEncoding.DecodeString(page.Continue)
	if want := `"start":"a\u0000"}`; err != nil || !strings.HasSuffix(string(token), want) {
		t.Errorf("continue token %s, %v, want …%s", token, err, want)
	}
	rest, err := events.List(ctx, metav1.ListOptions{Continue: page.Continue})
	if err != nil || len(rest.Items) != 1 || rest.Items[0].Name != "b" {
		t.Errorf("it continues with %v, %v", rest, err)
	}
	w, err := events.Watch(ctx, metav1.ListOptions{ResourceVersion: "1"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	e := <-w.ResultChan()
	if status, ok := e.Object.(*metav1.Status); !ok || status.Code != 410 ||
		status.Message != "The resourceVersion for the provided watch is too old." {
		t.Errorf("a watch of old says %v", e)
	}
}

// TestEventsEndTogether deletes a collection of events. The deletion must use as few revisions as
// the size of a transaction allows, watches must report each event, and an event with a finalizer
// must stay.
func TestEventsEndTogether(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	ctx, events := t.Context(), s.Client.CoreV1().Events("default")
	const count = 2*kv.MaxChanges + 10
	create := func(name string, labels map[string]string, finalizers ...string) *v1.Event {
		t.Helper()
		e, err := events.Create(ctx, &v1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name, Labels: labels, Finalizers: finalizers},
			InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "a"}, Reason: "Tested",
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	mine := map[string]string{"of": "test"}
	create("other", nil)
	var last *v1.Event
	for i := range count {
		last = create(fmt.Sprintf("e%03d", i), mine)
	}
	w, err := events.Watch(ctx, metav1.ListOptions{LabelSelector: "of=test", ResourceVersion: last.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	selected := metav1.ListOptions{LabelSelector: "of=test"}
	if err := events.DeleteCollection(ctx, metav1.DeleteOptions{}, selected); err != nil {
		t.Fatal(err)
	}
	gone, revisions := map[string]bool{}, map[string]bool{}
	for len(gone) < count {
		e, ok := <-w.ResultChan()
		if !ok || e.Type != watch.Deleted {
			t.Fatalf("%d of %d have ended, then %v", len(gone), count, e)
		}
		o := e.Object.(*v1.Event)
		gone[o.Name], revisions[o.ResourceVersion] = true, true
	}
	if len(revisions) != 3 {
		t.Errorf("%d revisions, want 3", len(revisions))
	}

	create("kept", mine, "example.com/kept")
	create("free", mine)
	if err := events.DeleteCollection(ctx, metav1.DeleteOptions{}, selected); err != nil {
		t.Fatal(err)
	}
	left, err := events.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left.Items {
		if e.Name == "free" || e.Name == "kept" && e.DeletionTimestamp == nil {
			t.Errorf("%s is left: %v", e.Name, e.DeletionTimestamp)
		}
		delete(gone, e.Name)
	}
	if len(gone) != count {
		t.Errorf("%d of %d events have gone", len(gone), count)
	}
}
