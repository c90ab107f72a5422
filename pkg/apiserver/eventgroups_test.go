// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestEventsOfBothGroups checks that the core group and events.k8s.io show the same events,
// whichever group a client created them in, and that field selectors use the field names of the
// group.
func TestEventsOfBothGroups(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	ctx, old, newer := t.Context(), s.Client.CoreV1().Events("default"), s.Client.EventsV1().Events("default")
	about := func(pod string) v1.ObjectReference {
		return v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: pod}
	}
	first, err := old.Create(ctx, &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, InvolvedObject: about("p"), Reason: "Tested", ReportingController: "one",
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	since := metav1.ListOptions{ResourceVersion: first.ResourceVersion, FieldSelector: "involvedObject.name=p"}
	oldWatch, err := old.Watch(ctx, since)
	if err != nil {
		t.Fatal(err)
	}
	defer oldWatch.Stop()
	since.FieldSelector = "regarding.name=p,reportingController!=nobody"
	newWatch, err := newer.Watch(ctx, since)
	if err != nil {
		t.Fatal(err)
	}
	defer newWatch.Stop()

	for name, pod := range map[string]string{"b": "q", "c": "p"} {
		made, err := newer.Create(ctx, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Regarding: about(pod), Reason: "Tested",
			Type: v1.EventTypeNormal, Action: "Test",
			ReportingController: "example.com/two", ReportingInstance: "i", EventTime: metav1.NowMicro(), Note: "as it was",
		}, metav1.CreateOptions{})
		if err != nil || made.Note != "as it was" || made.ResourceVersion == "" {
			t.Fatalf("event made through the newer group: %+v, %v", made, err)
		}
	}
	if _, err := newer.Patch(ctx, "c", types.MergePatchType,
		[]byte(`{"series":{"count":2,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Patch(ctx, "a", types.MergePatchType, []byte(`{"count":3}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := newer.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := old.Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	var oldTold, newTold []string
	for range 5 {
		e := <-oldWatch.ResultChan()
		o, ok := e.Object.(*v1.Event)
		if !ok {
			t.Fatalf("the core group shows %+v", e)
		}
		oldTold = append(oldTold, fmt.Sprint(e.Type, o.Name, o.ResourceVersion, o.InvolvedObject.Name, o.Count,
			o.Series != nil))
		e = <-newWatch.ResultChan()
		n, ok := e.Object.(*eventsv1.Event)
		if !ok {
			t.Fatalf("the newer group shows %+v", e)
		}
		newTold = append(newTold, fmt.Sprint(e.Type, n.Name, n.ResourceVersion, n.Regarding.Name,
			n.DeprecatedCount, n.Series != nil))
	}
	if fmt.Sprint(oldTold) != fmt.Sprint(newTold) {
		t.Errorf("the core group shows %v, the newer one %v", oldTold, newTold)
	}
	for i, want := range []watch.EventType{watch.Added, watch.Modified, watch.Modified, watch.Deleted, watch.Deleted} {
		if e := oldTold[i]; len(e) < len(want) || e[:len(want)] != string(want) {
			t.Errorf("event %d is %s, want %s", i, e, want)
		}
	}

	for selector, count := range map[string]int{"": 1, "regarding.name=q": 1, "regarding.name=p": 0,
		"reportingController=example.com/two": 1, "type!=Normal": 0} {
		list, err := newer.List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(list.Items) != count {
			t.Errorf("%q selects %v, %v, want %d", selector, list, err, count)
		}
	}
	if list, err := old.List(ctx,
		metav1.ListOptions{FieldSelector: "involvedObject.name=q,source=example.com/two"}); err != nil ||
		len(list.Items) != 1 {
		t.Errorf("the core group selects %v, %v", list, err)
	}
	if _, err := newer.List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=q"}); err == nil {
		t.Error("a field of the core group is known in the newer one")
	}
}
