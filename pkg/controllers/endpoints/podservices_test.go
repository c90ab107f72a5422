// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"slices"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestServicesOf checks which Services are synced after a change of a pod.
func TestServicesOf(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for name, selector := range map[string]map[string]string{
		"a": {"app": "a"}, "one": {"app": "a", "revision": "1"}, "two": {"app": "a", "revision": "2"}, "none": nil,
	} {
		service := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec: v1.ServiceSpec{Selector: selector}}
		if err := indexer.Add(service); err != nil {
			t.Fatal(err)
		}
	}
	services := corelisters.NewServiceLister(indexer)
	version := 0
	of := func(uid types.UID, revision string, ready bool) *v1.Pod {
		p := pod(podStatus(ready))
		version++
		p.UID, p.Labels, p.ResourceVersion = uid, map[string]string{"app": "a", "revision": revision}, strconv.Itoa(version)
		return p
	}
	same := of("u", "1", true)
	for name, tc := range map[string]struct {
		old, pod *v1.Pod
		want     []string
	}{
		"added":                            {nil, of("u", "1", true), []string{"ns/a", "ns/one"}},
		"deleted":                          {of("u", "1", true), nil, []string{"ns/a", "ns/one"}},
		"not changed":                      {same, same, nil},
		"changed otherwise":                {of("u", "1", true), of("u", "1", true), nil},
		"not ready any more":               {of("u", "1", true), of("u", "1", false), []string{"ns/a", "ns/one"}},
		"relabelled":                       {of("u", "1", true), of("u", "2", true), []string{"ns/one", "ns/two"}},
		"relabelled and not ready":         {of("u", "1", true), of("u", "2", false), []string{"ns/a", "ns/one", "ns/two"}},
		"replaced by a pod of same labels": {of("u", "1", true), of("v", "1", true), []string{"ns/a", "ns/one"}},
		"replaced":                         {of("u", "1", true), of("v", "2", true), []string{"ns/a", "ns/one", "ns/two"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sets.List(servicesOf(services, tc.old, tc.pod)); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
