// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/controllers/controller"
)

var owner = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: "ns", UID: "owner"}}

func pod(name string, matches bool, controlledBy string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
	if matches {
		p.Labels = map[string]string{"app": "web"}
	}
	if controlledBy != "" {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(controlledBy), Controller: &yes}}
	}
	return p
}

func TestClaim(t *testing.T) {
	var (
		pods     = schema.GroupResource{Resource: "pods"}
		notFound = apierrors.NewNotFound(pods, "x")
		invalid  = apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "x", nil)
		broken   = errors.New("broken")
	)
	for _, tc := range []struct {
		name    string
		pod     *v1.Pod
		answer  error
		mine    bool
		patched bool
		err     error
	}{
		{name: "controlled and selected", pod: pod("a", true, "owner"), mine: true},
		{name: "controlled by another", pod: pod("a", true, "another")},
		{name: "not selected", pod: pod("a", false, "")},
		{name: "adopted", pod: pod("a", true, ""), mine: true, patched: true},
		{name: "deleted before adoption", pod: pod("a", true, ""), answer: notFound, patched: true},
		{name: "adoption rejected", pod: pod("a", true, ""), answer: invalid, patched: true, err: invalid},
		{name: "adoption fails", pod: pod("a", true, ""), answer: broken, patched: true, err: broken},
		{name: "released", pod: pod("a", false, "owner"), patched: true},
		{name: "deleted before release", pod: pod("a", false, "owner"), answer: notFound, patched: true},
		{name: "released by another", pod: pod("a", false, "owner"), answer: invalid, patched: true},
		{name: "release fails", pod: pod("a", false, "owner"), answer: broken, patched: true, err: broken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			patched := false
			o := controller.Owner{
				Object: owner, Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
				Selector: labels.SelectorFromSet(labels.Set{"app": "web"}),
				GetLive:  func() (metav1.Object, error) { return owner, nil },
				Patch:    func(metav1.Object, []byte) error { patched = true; return tc.answer },
			}
			mine, err := controller.Claim(o, []*v1.Pod{tc.pod})
			if got := slices.Contains(mine, tc.pod); got != tc.mine {
				t.Errorf("mine: %v, want %v", got, tc.mine)
			}
			if patched != tc.patched {
				t.Errorf("patched: %v, want %v", patched, tc.patched)
			}
			if !errors.Is(err, tc.err) || tc.err == nil && err != nil {
				t.Errorf("error: %v, want %v", err, tc.err)
			}
		})
	}
}

// TestClaimChecksOwner checks that Claim adopts nothing for an owner in the cache that was deleted
// and recreated in the meantime.
func TestClaimChecksOwner(t *testing.T) {
	other := owner.DeepCopy()
	other.UID = "recreated"
	o := controller.Owner{
		Object: owner, Selector: labels.Everything(),
		GetLive: func() (metav1.Object, error) { return other, nil },
		Patch:   func(metav1.Object, []byte) error { t.Error("adopted for an owner that was replaced"); return nil },
	}
	if mine, err := controller.Claim(o, []*v1.Pod{pod("a", true, "")}); err == nil || len(mine) > 0 {
		t.Errorf("claimed %v, %v", mine, err)
	}
}
