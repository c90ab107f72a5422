// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/rest"
)

const boundPod = `{"metadata":{"name":"p"},"spec":{"terminationGracePeriodSeconds":30,"nodeName":"n",` +
	`"containers":[{"name":"c","image":"i"}]}}`

// TestGracefulDelete deletes a pod several times, and checks that a later delete can shorten the
// grace period but not lengthen it.
func TestGracefulDelete(t *testing.T) {
	e := newEnv(t, nil)
	e.must(t, "POST", pods, boundPod)
	for _, step := range []struct {
		query string
		grace int64
	}{{"", 30}, {"", 30}, {"?gracePeriodSeconds=60", 30}, {"?gracePeriodSeconds=5", 5}, {"?gracePeriodSeconds=-3", 1}} {
		got := parse[object](t, e.must(t, "DELETE", pods+"/p"+step.query, ""))
		if got.Kind != "Pod" || got.DeletionTimestamp == nil || *got.DeletionGracePeriodSeconds != step.grace ||
			got.Generation != 2 {
			t.Errorf("%q: %+v, want grace %d", step.query, got.ObjectMeta, step.grace)
		}
	}
	if got := parse[object](t,
		e.must(t, "DELETE", pods+"/p?gracePeriodSeconds=0", "")); *got.DeletionGracePeriodSeconds != 0 {
		t.Errorf("the end: %+v", got.ObjectMeta)
	}
	if r := e.do(t, "GET", pods+"/p", ""); r.code != 404 {
		t.Errorf("still there: %s", r.body)
	}
}

// TestEndIsOneWrite checks that the final delete of a pod removes it in one write, and that in the
// last state that watchers receive, the grace period is 0.
func TestEndIsOneWrite(t *testing.T) {
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(contentType, func(t *testing.T) {
			e := newEnv(t, nil)
			client := clientset(t, e, contentType).CoreV1().Pods("t")
			e.must(t, "POST", pods, boundPod)
			marked := parse[object](t, e.must(t, "DELETE", pods+"/p", ""))
			w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: marked.ResourceVersion})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			answer := parse[object](t, e.must(t, "DELETE", pods+"/p?gracePeriodSeconds=0", ""))
			ev := <-w.ResultChan()
			pod, ok := ev.Object.(*corev1.Pod)
			if !ok || ev.Type != watch.Deleted {
				t.Fatalf("%v %+v, want the pod's end", ev.Type, ev.Object)
			}
			asked := marked.DeletionTimestamp.Add(-30 * time.Second)
			for what, meta := range map[string]metav1.ObjectMeta{"answer": answer.ObjectMeta, "event": pod.ObjectMeta} {
				if *meta.DeletionGracePeriodSeconds != 0 || !meta.DeletionTimestamp.Time.Equal(asked) || meta.UID != marked.UID {
					t.Errorf("%s: %v, %v s, want %v, 0", what, meta.DeletionTimestamp, *meta.DeletionGracePeriodSeconds, asked)
				}
			}
			if pod.ResourceVersion != answer.ResourceVersion || pod.Spec.NodeName != "n" {
				t.Errorf("event %+v, answer %+v", pod, answer)
			}
		})
	}
}

// TestEndOfAnother replaces a pod by a new pod of the same name with a finalizer, just before the
// final delete of the old pod. The delete must not remove the new pod.
func TestEndOfAnother(t *testing.T) {
	var e *env
	var replaced bool
	replace := func(context.Context, resource.Object, *metav1.DeleteOptions) error {
		if !replaced {
			replaced = true
			e.must(t, "DELETE", pods+"/p?gracePeriodSeconds=0", "")
			e.must(t, "POST", pods, strings.Replace(boundPod, `"name":"p"`, `"name":"p","finalizers":["a/b"]`, 1))
		}
		return nil
	}
	e = newEnv(t, func(c *rest.Config) {
		rowOf(t, c, "pods").Hooks.BeforeDelete = func(ctx context.Context, o resource.Object, d *metav1.DeleteOptions) error {
			if o.GetDeletionTimestamp() == nil {
				return nil
			}
			return replace(ctx, o, d)
		}
	})
	e.must(t, "POST", pods, boundPod)
	e.must(t, "DELETE", pods+"/p", "")
	e.must(t, "DELETE", pods+"/p?gracePeriodSeconds=0", "")
	got := parse[object](t, e.must(t, "GET", pods+"/p", ""))
	if !replaced || got.DeletionTimestamp == nil || *got.DeletionGracePeriodSeconds != 0 || len(got.Finalizers) != 1 {
		t.Errorf("%+v, want the new pod, as ending", got.ObjectMeta)
	}
}

// TestPropagationWithoutGarbageCollector checks that deletes neither add nor remove the garbage
// collector's finalizers if no garbage collector runs.
func TestPropagationWithoutGarbageCollector(t *testing.T) {
	for finalizers, want := range map[string]string{`[]`: "", `["orphan"]`: "[orphan]",
		`["foregroundDeletion","a/b"]`: "[foregroundDeletion a/b]"} {
		for _, query := range []string{"", "?propagationPolicy=Orphan", "?propagationPolicy=Foreground",
			"?propagationPolicy=Background", "?orphanDependents=true"} {
			e := newEnv(t, func(c *rest.Config) { c.NoGarbageCollection = true })
			e.must(t, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"a","finalizers":%s}}`, finalizers))
			e.must(t, "DELETE", configMaps+"/a"+query, "")
			r := e.do(t, "GET", configMaps+"/a", "")
			if want == "" {
				if r.code != 404 {
					t.Errorf("%q: still there: %s", query, r.body)
				}
				continue
			}
			if got := parse[object](t, r); fmt.Sprint(got.Finalizers) != want || got.DeletionTimestamp == nil {
				t.Errorf("%s %q: finalizers %v, deleted %v", finalizers, query, got.Finalizers, got.DeletionTimestamp)
			}
		}
	}
}

// TestDryRunOfReleased checks a dry run of a delete whose only effects would be to remove the
// garbage collector's finalizers and then the object. As in Kubernetes, the response is an empty
// object.
func TestDryRunOfReleased(t *testing.T) {
	e := newEnv(t, nil)
	e.must(t, "POST", configMaps, `{"metadata":{"name":"a","finalizers":["orphan"]}}`)
	for _, query := range []string{"&propagationPolicy=Background", "&orphanDependents=false"} {
		r := e.do(t, "DELETE", configMaps+"/a?dryRun=All"+query, "")
		if want := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{}}`; r.code != 200 ||
			strings.TrimSpace(r.body) != want {
			t.Errorf("%s: %d %s, want %s", query, r.code, r.body, want)
		}
	}
	if got := parse[object](t, e.must(t, "GET", configMaps+"/a", "")); got.DeletionTimestamp != nil ||
		len(got.Finalizers) != 1 {
		t.Errorf("%+v, want it as it was", got.ObjectMeta)
	}
}

func TestPropagation(t *testing.T) {
	tests := map[string]struct {
		finalizers, query string
		want              []string // finalizers of the object after the delete; nil if it is removed
	}{
		"Background":       {query: ""},
		"Orphan":           {query: "?propagationPolicy=Orphan", want: []string{"orphan"}},
		"Foreground":       {query: "?propagationPolicy=Foreground", want: []string{"foregroundDeletion"}},
		"OrphanDependents": {query: "?orphanDependents=true", want: []string{"orphan"}},
		"Finalizer":        {finalizers: `["a/b"]`, want: []string{"a/b"}},
		"FinalizerAndMore": {finalizers: `["a/b"]`, query: "?propagationPolicy=Foreground",
			want: []string{"a/b", "foregroundDeletion"}},
		"FinalizerDecides":  {finalizers: `["orphan"]`, want: []string{"orphan"}},
		"PolicyOverrides":   {finalizers: `["orphan"]`, query: "?propagationPolicy=Background"},
		"DryRunLeavesAlone": {query: "?dryRun=All", want: []string{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, nil)
			finalizers := tt.finalizers
			if finalizers == "" {
				finalizers = "[]"
			}
			e.must(t, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"a","finalizers":%s}}`, finalizers))
			e.must(t, "DELETE", configMaps+"/a"+tt.query, "")
			r := e.do(t, "GET", configMaps+"/a", "")
			if (r.code == 404) != (tt.want == nil) {
				t.Fatalf("%d %s", r.code, r.body)
			}
			if tt.want == nil {
				return
			}
			got := parse[object](t, r)
			if fmt.Sprint(got.Finalizers) != fmt.Sprint(tt.want) || (got.DeletionTimestamp != nil) != (len(tt.want) > 0) {
				t.Errorf("finalizers %v, deleted %v", got.Finalizers, got.DeletionTimestamp)
			}
			if len(tt.want) == 0 {
				return
			}
			e.must(t, "PATCH", configMaps+"/a", `{"metadata":{"finalizers":null}}`, "Content-Type", merge)
			if r := e.do(t, "GET", configMaps+"/a", ""); r.code != 404 {
				t.Errorf("the last finalizer is gone, the object is not: %s", r.body)
			}
		})
	}
}

func TestDeleteCollection(t *testing.T) {
	e := newEnv(t, nil)
	for i := range 30 {
		e.must(t, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"c%d","labels":{"odd":"%d"}}}`, i, i%2))
	}
	e.must(t, "DELETE", configMaps+"?labelSelector=odd=1", "")
	list := parse[struct{ Items []object }](t, e.must(t, "GET", configMaps, ""))
	if len(list.Items) != 15 {
		t.Errorf("%d are left", len(list.Items))
	}
	for _, item := range list.Items {
		if item.Labels["odd"] != "0" {
			t.Errorf("%s is left", item.Name)
		}
	}
}
