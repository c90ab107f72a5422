// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package perturb_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"keelson.dev/keelson/pkg/controllers/perturb"
)

// without leaves a field out.
func without(path ...string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, path...) }
}

// sizes leaves out for which size of the Deployment an old set was scaled last:
// that depends on how far the rollout was when the size changed.
func sizes(o *unstructured.Unstructured) {
	if !is(o, "ReplicaSet") {
		return
	}
	notes := o.GetAnnotations()
	delete(notes, "deployment.kubernetes.io/desired-replicas")
	delete(notes, "deployment.kubernetes.io/max-replicas")
	o.SetAnnotations(notes)
}

// podRanges leaves out which range a node has: that it has one is enough, and
// that no two have the same is what the API server's own state shows.
func podRanges(o *unstructured.Unstructured) {
	if cidrs, found, err := unstructured.NestedStringSlice(o.Object, "spec", "podCIDRs"); err != nil || !found || len(cidrs) != 1 {
		return
	}
	unstructured.RemoveNestedField(o.Object, "spec", "podCIDR")
	unstructured.RemoveNestedField(o.Object, "spec", "podCIDRs")
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["has-a-range"] = "yes"
	o.SetLabels(labels)
}

// unordered leaves out since when a node has its taints, and puts them in order:
// both depend on which of its conditions was seen first.
func unordered(o *unstructured.Unstructured) {
	taints, found, err := unstructured.NestedSlice(o.Object, "spec", "taints")
	if err != nil || !found {
		return
	}
	for _, t := range taints {
		delete(t.(map[string]any), "timeAdded")
	}
	slices.SortFunc(taints, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	if err := unstructured.SetNestedSlice(o.Object, taints, "spec", "taints"); err != nil {
		panic(err)
	}
}

// changeTime leaves out when endpoints were last seen to change.
func changeTime(o *unstructured.Unstructured) {
	notes := o.GetAnnotations()
	delete(notes, v1.EndpointsLastChangeTriggerTime)
	if len(notes) == 0 {
		notes = nil
	}
	o.SetAnnotations(notes)
}

// minutes leaves out of which minute a job is.
func minutes(o *unstructured.Unstructured) {
	unstructured.RemoveNestedField(o.Object, "status", "lastScheduleTime")
	replace(o, `tick-\d+`, "tick-MINUTE")
}

// recycled leaves out the random part of the names of slices, which is not told
// by a generateName when one took over another's place.
func recycled(o *unstructured.Unstructured) {
	changeTime(o)
	o.SetGenerateName("")
	replace(o, `"(web|b)-[a-z0-9]{5}"`, `"$1-NAME"`)
}

func replace(o *unstructured.Unstructured, pattern, with string) {
	b, err := o.MarshalJSON()
	if err != nil {
		panic(err) // what was decoded encodes
	}
	if err := o.UnmarshalJSON(regexp.MustCompile(pattern).ReplaceAll(b, []byte(with))); err != nil {
		panic(err)
	}
}

// unseen leaves out that a job was held: nobody may have seen it.
func unseen(o *unstructured.Unstructured) {
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		panic(err)
	}
	conditions = slices.DeleteFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == "Suspended" })
	if err := unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions"); err != nil {
		panic(err)
	}
}

// someFail has pods end well after a while, but for those of the job named fails.
func someFail(pod *v1.Pod, age time.Duration) time.Duration {
	const after = 3 * time.Second
	if age < after {
		perturb.Running(pod, age)
		return after - age
	}
	phase := v1.PodSucceeded
	if strings.HasPrefix(pod.Name, "fails-") {
		phase = v1.PodFailed
	}
	perturb.End(pod, phase)
	return 0
}

// claimNames leaves out the names of claims, of which a part is random, and by
// what a claim without an allocation is held: by nothing, or by what the next
// allocation needs anyway.
func claimNames(o *unstructured.Unstructured) {
	if is(o, "ResourceClaim") {
		o.SetFinalizers(nil)
	}
	replace(o, `"resourceClaimName":"[^"]*"`, `"resourceClaimName":"NAME"`)
}
