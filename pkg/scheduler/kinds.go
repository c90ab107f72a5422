// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"reflect"
	"unsafe"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

// maxKinds is how many kinds are kept.
const maxKinds = 1 << 12

// compiled is what is computed once for a pod in the queue.
type compiled struct {
	pod   *scheduling.Pod
	class string
}

// kinds has the compiled forms of pods that share their spec and labels. Package intake makes pods
// of one controller share them.
type kinds map[kindKey]*compiled

// kindKey is equal for pods that compile to the same result. The first pod compiled keeps the
// objects behind its pointers alive, so that no other object gets the same address.
type kindKey struct {
	profile    *profile.Profile
	namespace  string
	containers *v1.Container
	labels     unsafe.Pointer
}

// of returns what is computed once for the pod of an item.
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

// ordinary reports whether plugins read only a pod's spec and labels, and nothing in these is
// specific to the pod.
func ordinary(pod *v1.Pod) bool {
	s := &pod.Status
	return len(pod.Spec.Containers) > 0 && len(pod.Spec.Volumes) == 0 && pod.Spec.NodeName == "" &&
		pod.DeletionTimestamp == nil &&
		len(s.ContainerStatuses)+len(s.InitContainerStatuses) == 0 && s.Resources == nil && s.AllocatedResources == nil
}
