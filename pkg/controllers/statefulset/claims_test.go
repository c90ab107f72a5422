// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refsOf parses a text like "set pod? other" into owner references. A question mark means that the
// owner is not the controller. was-set and was-pod are earlier objects with the names of the
// StatefulSet and the pod.
func refsOf(set *appsv1.StatefulSet, pod *v1.Pod, text string) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, word := range strings.Fields(text) {
		var ref *metav1.OwnerReference
		switch strings.TrimSuffix(word, "?") {
		case "set":
			ref = metav1.NewControllerRef(set, kind)
		case "was-set":
			ref = metav1.NewControllerRef(set, kind)
			ref.UID = "former"
		case "pod":
			ref = metav1.NewControllerRef(pod, podKind)
		case "was-pod":
			ref = metav1.NewControllerRef(pod, podKind)
			ref.UID = "former"
		default:
			ref = metav1.NewControllerRef(&metav1.ObjectMeta{Name: word, UID: "other"}, kind)
		}
		if strings.HasSuffix(word, "?") {
			ref.Controller = nil
		}
		out = append(out, *ref)
	}
	return out
}

func showRefs(refs []metav1.OwnerReference) string {
	var out []string
	for _, ref := range refs {
		word := map[string]string{"uid-set": "set", "uid-web-0": "pod", "other": "other", "former": "former"}[string(ref.UID)]
		if ref.Controller == nil || !*ref.Controller {
			word += "?"
		}
		out = append(out, word)
	}
	return strings.Join(out, " ")
}

func TestOwners(t *testing.T) {
	const unchanged = "-"
	for name, tc := range map[string]struct {
		whenDeleted, whenScaled appsv1.PersistentVolumeClaimRetentionPolicyType
		has                     string
		kept, gone              string // expected owners: the pod is kept, the pod is scaled away
		contested               bool
	}{
		"kept":                        {retain, retain, "", unchanged, unchanged, false},
		"kept from now on":            {retain, retain, "set other", "other", "other", false},
		"kept, with another owner":    {retain, retain, "other", unchanged, unchanged, false},
		"with the set":                {remove, retain, "", "set", "set", false},
		"with the set, unchanged":     {remove, retain, "set", unchanged, unchanged, false},
		"no longer with the pod":      {remove, retain, "pod", "set", "set", false},
		"with the pod":                {retain, remove, "", unchanged, "pod", false},
		"with the pod, unchanged":     {retain, remove, "pod", "", unchanged, false},
		"with either":                 {remove, remove, "", "set", "pod", false},
		"with either, owned by set":   {remove, remove, "set", unchanged, "pod", false},
		"owner that does not control": {remove, retain, "set?", "set", "set", false},
		"another's":                   {remove, remove, "other", unchanged, unchanged, true},
		"another's and ours":          {remove, remove, "set other", "other", "other", true},
		"another owner":               {remove, retain, "other?", "other? set", "other? set", false},
		"of an earlier set":           {remove, remove, "was-set", unchanged, unchanged, true},
		"of an earlier pod":           {remove, remove, "was-pod", unchanged, unchanged, true},
	} {
		t.Run(name, func(t *testing.T) {
			for replicas, want := range []string{tc.gone, tc.kept} {
				set := setOf(int32(replicas))
				set.Spec.PersistentVolumeClaimRetentionPolicy =
					&appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: tc.whenDeleted, WhenScaled: tc.whenScaled}
				pod := podsOf(set, "0:ready:new")[0]
				claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: refsOf(set, pod, tc.has)}}
				refs, change, contested := claimOwners(claim, set, pod)
				got := unchanged
				if change {
					got = showRefs(refs)
				}
				if got != want || contested != tc.contested {
					t.Errorf("with %d replicas: %q, contested %v, want %q, %v", replicas, got, contested, want, tc.contested)
				}
			}
		})
	}
}

func withClaim(s *appsv1.StatefulSet) {
	s.Spec.VolumeClaimTemplates = []v1.PersistentVolumeClaim{
		{ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{"own": "x"}}}}
}

func TestDecideClaims(t *testing.T) {
	scaled := func(s *appsv1.StatefulSet) {
		withClaim(s)
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: retain, WhenScaled: remove}
	}
	for name, tc := range map[string]struct {
		set  *appsv1.StatefulSet
		pods string
		has  string // owners of each claim; "none" if there is no claim
		want string
	}{
		"missing, and the pod waits for it": {setOf(1, withClaim), "0:pending:new", "none", "claims 0"},
		"there":                             {setOf(1, withClaim), "0:pending:new", "", ""},
		"missing, and the pod runs":         {setOf(1, withClaim), "0:ready:new", "none", ""},
		"of an earlier pod":                 {setOf(1, scaled), "", "was-pod", ""},
		"of an earlier pod, in parallel":    {setOf(2, scaled, parallel), "1:ready:new", "was-pod", ""},
		"nobody's":                          {setOf(1, scaled), "", "", "create 0:new"},
		"of a pod that stays":               {setOf(1, scaled), "0:ready:new", "pod", "repair 0"},
		"of a condemned pod":                {setOf(0, scaled), "0:ready:new", "", "settle 0 | destroy 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(tc.set, tc.pods)
			for _, pod := range s.pods {
				setVolumes(tc.set, pod)
			}
			zero := podsOf(tc.set, "0:ready:new")[0]
			s.claim = func(string) *v1.PersistentVolumeClaim {
				if tc.has == "none" {
					return nil
				}
				return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: refsOf(tc.set, zero, tc.has)}}
			}
			p, err := decide(s)
			if err != nil {
				t.Fatal(err)
			}
			if got := show(p); got != tc.want {
				t.Errorf("plan: %q, want %q", got, tc.want)
			}
		})
	}
}

func TestNewPod(t *testing.T) {
	set := setOf(1, withClaim)
	set.Spec.Template.Spec.Volumes = []v1.Volume{{Name: "data"}, {Name: "other"}}
	pod := newPod(set, revision{"rev", &set.Spec.Template}, 4)
	if pod.Name != "web-4" || pod.GenerateName != "" || pod.Spec.Hostname != "web-4" ||
		pod.Spec.Subdomain != "svc" || !hasIdentity(pod) || !hasVolumes(set, pod) {
		t.Errorf("pod: %+v", pod)
	}
	if l := pod.Labels; l["app"] != "web" || l[appsv1.PodIndexLabel] != "4" || revisionOf(pod) != "rev" {
		t.Errorf("labels: %v", l)
	}
	if v := pod.Spec.Volumes; len(v) != 2 || v[0].Name != "data" ||
		v[0].PersistentVolumeClaim.ClaimName != "data-web-4" || v[1].Name != "other" {
		t.Errorf("volumes: %v", v)
	}
	claim := newClaims(set, 4)[0]
	if claim.Name != "data-web-4" || claim.Namespace != "default" || claim.Labels["app"] != "web" ||
		claim.Labels["own"] != "x" {
		t.Errorf("claim: %+v", claim.ObjectMeta)
	}
}
