// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"fmt"
	"testing"
)

const boundPod = `{"metadata":{"name":"p"},"spec":{"terminationGracePeriodSeconds":30,"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`

// TestGracefulDelete walks a pod through its end: a grace period only shrinks.
func TestGracefulDelete(t *testing.T) {
	e := newEnv(t, nil)
	e.must(t, "POST", pods, boundPod)
	for _, step := range []struct {
		query string
		grace int64
	}{{"", 30}, {"", 30}, {"?gracePeriodSeconds=60", 30}, {"?gracePeriodSeconds=5", 5}, {"?gracePeriodSeconds=-3", 1}} {
		got := parse[object](t, e.must(t, "DELETE", pods+"/p"+step.query, ""))
		if got.Kind != "Pod" || got.DeletionTimestamp == nil || *got.DeletionGracePeriodSeconds != step.grace || got.Generation != 2 {
			t.Errorf("%q: %+v, want grace %d", step.query, got.ObjectMeta, step.grace)
		}
	}
	if got := parse[object](t, e.must(t, "DELETE", pods+"/p?gracePeriodSeconds=0", "")); *got.DeletionGracePeriodSeconds != 0 {
		t.Errorf("the end: %+v", got.ObjectMeta)
	}
	if r := e.do(t, "GET", pods+"/p", ""); r.code != 404 {
		t.Errorf("still there: %s", r.body)
	}
}

func TestPropagation(t *testing.T) {
	tests := map[string]struct {
		finalizers, query string
		want              []string // finalizers that keep the object; nil: gone
	}{
		"Background":        {query: ""},
		"Orphan":            {query: "?propagationPolicy=Orphan", want: []string{"orphan"}},
		"Foreground":        {query: "?propagationPolicy=Foreground", want: []string{"foregroundDeletion"}},
		"OrphanDependents":  {query: "?orphanDependents=true", want: []string{"orphan"}},
		"Finalizer":         {finalizers: `["a/b"]`, want: []string{"a/b"}},
		"FinalizerAndMore":  {finalizers: `["a/b"]`, query: "?propagationPolicy=Foreground", want: []string{"a/b", "foregroundDeletion"}},
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
