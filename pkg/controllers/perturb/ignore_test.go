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

// without returns an Ignore function that removes the field at the given path.
func without(path ...string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, path...) }
}

// sizes removes the annotations that record the Deployment's size at the last scaling of a
// ReplicaSet. Their values depend on how far the rollout had come when the size changed.
func sizes(o *unstructured.Unstructured) {
	if !is(o, "ReplicaSet") {
		return
	}
	notes := o.GetAnnotations()
	delete(notes, "deployment.kubernetes.io/desired-replicas")
	delete(notes, "deployment.kubernetes.io/max-replicas")
	o.SetAnnotations(notes)
}

// podRanges replaces a node's pod range by a label, because the order in which ranges are assigned
// may differ. rangesDiffer checks that no two nodes have the same range.
func podRanges(o *unstructured.Unstructured) {
	if cidrs, found, err := unstructured.NestedStringSlice(o.Object, "spec", "podCIDRs"); err != nil ||
		!found || len(cidrs) != 1 {
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

// unordered sorts a node's taints and removes the times at which they were added. The order and the
// times depend on which condition the controller saw first.
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

// changeTime removes the annotation with the time of the last change of endpoints.
func changeTime(o *unstructured.Unstructured) {
	notes := o.GetAnnotations()
	delete(notes, v1.EndpointsLastChangeTriggerTime)
	if len(notes) == 0 {
		notes = nil
	}
	o.SetAnnotations(notes)
}

// minutes replaces the scheduled minute in the names of jobs by a constant, and removes the time of
// the last start from a CronJob's status.
func minutes(o *unstructured.Unstructured) {
	unstructured.RemoveNestedField(o.Object, "status", "lastScheduleTime")
	replace(o, `tick-\d+`, "tick-MINUTE")
}

// recycled removes the random part of the names of EndpointSlices. Cell.state removes it only from
// names that begin with the object's generateName. If the controller reused a slice, the slice's name
// may begin with something else.
func recycled(o *unstructured.Unstructured) {
	changeTime(o)
	o.SetGenerateName("")
	replace(o, `"(web|b)-[a-z0-9]{5}"`, `"$1-NAME"`)
}

func replace(o *unstructured.Unstructured, pattern, with string) {
	b, err := o.MarshalJSON()
	if err != nil {
		panic(err) // cannot happen: decoded objects can be encoded
	}
	if err := o.UnmarshalJSON(regexp.MustCompile(pattern).ReplaceAll(b, []byte(with))); err != nil {
		panic(err)
	}
}

// unseen removes the Suspended condition of jobs, because the controller may not have seen that the
// job was suspended.
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

// someFail is a Kubelet that makes pods end after 3 s. Pods of the job "fails" fail,
// and all others succeed.
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

// claimNames removes the names of claims in the status of pods, which have a random part. It also
// removes the finalizers of claims, because a claim without an allocation may or may not have the
// finalizer that an allocation needs.
func claimNames(o *unstructured.Unstructured) {
	if is(o, "ResourceClaim") {
		o.SetFinalizers(nil)
	}
	replace(o, `"resourceClaimName":"[^"]*"`, `"resourceClaimName":"NAME"`)
}
