// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"reflect"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

// maxKinds is how many kinds of pods (pods with the same spec and labels) are cached. When the
// limit is reached, all are dropped.
const maxKinds = 1 << 12

// compiled has the results of a pod's spec that are computed once and used for every attempt: the
// parsed pod and its class key (see classKey).
type compiled struct {
	pod   *scheduling.Pod
	class string
}

// kinds caches the compiled form of pods that share the same spec and labels in memory. Package
// intake lets the pods of one controller share them.
type kinds map[kindKey]*compiled

// kindKey is equal for pods that compile to the same result. Two of its fields are addresses. The
// first compiled pod keeps the objects at these addresses alive, so that they are not reused for
// other objects.
type kindKey struct {
	profile    *profile.Profile
	namespace  string
	containers *v1.Container
	labels     unsafe.Pointer
}

// of returns the compiled form of the pod of a queue item, from a cache if possible.
func (k kinds) of(p *profile.Profile, item *queue.Item) (*compiled, error) {
	if c, ok := item.Memo.(*compiled); ok && c.pod.Pod == item.Pod {
		return c, nil
	}
	c, err := k.compile(p, item.Pod)
	if err == nil {
		item.Memo = c
	}
	return c, err
}

func (k kinds) compile(p *profile.Profile, pod *v1.Pod) (*compiled, error) {
	if !ordinary(pod) {
		return compileAlone(p, pod)
	}
	key := kindKey{p, pod.Namespace, &pod.Spec.Containers[0], reflect.ValueOf(pod.Labels).UnsafePointer()}
	known := k[key]
	if known == nil {
		var err error
		if known, err = compileAlone(p, pod); err != nil {
			return nil, err
		}
		if len(k) >= maxKinds {
			clear(k)
		}
		k[key] = known
	}
	alike := *known.pod
	alike.Pod, alike.Group = pod, nil
	return &compiled{&alike, known.class}, nil
}

func compileAlone(p *profile.Profile, pod *v1.Pod) (*compiled, error) {
	out := cell.Compile(pod)
	class, err := classKey(p, out)
	return &compiled{out, class}, err
}

// ordinary reports whether the compiled form of a pod depends only on its namespace, spec and
// labels, and no part of its spec is specific to the pod.
func ordinary(pod *v1.Pod) bool {
	s := &pod.Status
	return len(pod.Spec.Containers) > 0 && len(pod.Spec.Volumes) == 0 && pod.Spec.NodeName == "" &&
		pod.DeletionTimestamp == nil &&
		len(s.ContainerStatuses)+len(s.InitContainerStatuses) == 0 && s.Resources == nil && s.AllocatedResources == nil &&
		!resourcehelper.IsPodResizeInfeasible(pod)
}
