// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"fmt"
	"math/rand/v2"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/scheduler"
)

// extendedAsk is a pod's request for an extended resource.
type extendedAsk struct {
	name  v1.ResourceName
	class string // that provides it, or ""
	count int
	on    map[string]int // amount on each node whose status has the resource
}

// drawExtended adds a request for an extended resource to some pods.
func drawExtended(m *scheduler.Model, r *rand.Rand, pod *v1.Pod) (extendedAsk, error) {
	classes := []string{"any", "large", "x"}
	a := extendedAsk{name: "example.com/gadget", count: r.IntN(3), on: map[string]int{}}
	switch r.IntN(4) {
	case 0:
		a.class = classes[r.IntN(3)]
		a.name = v1.ResourceName("deviceclass.resource.kubernetes.io/" + a.class)
	case 1: // a resource that no device class provides
	default:
		// If several classes provide the resource, the most recently created class is used. Among
		// classes of the same age, the first by name is used.
		youngest := int64(-1)
		for _, name := range classes[r.IntN(3):] {
			class, age := classNamed(name), r.Int64N(2)
			class.Spec.ExtendedResourceName = ptr(string(a.name))
			class.CreationTimestamp = metav1.Unix(age, 0)
			if err := m.Set(class); err != nil {
				return a, err
			}
			if age > youngest {
				youngest, a.class = age, name
			}
		}
		for i := range 3 {
			node := fmt.Sprint("n", i)
			if r.IntN(3) > 0 {
				continue
			}
			a.on[node] = r.IntN(3)
			list := room()
			list[a.name] = *resource.NewQuantity(int64(a.on[node]), resource.DecimalSI)
			if err := m.Set(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node},
				Status: v1.NodeStatus{Allocatable: list}}); err != nil {
				return a, err
			}
		}
	}
	list := v1.ResourceList{a.name: *resource.NewQuantity(int64(a.count), resource.DecimalSI)}
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	return a, nil
}

// satisfiable does the same as the function satisfiable, for a pod that also requests this extended
// resource. A node whose status has the resource provides it itself. On other nodes, devices
// provide it.
func (a extendedAsk) satisfiable(node string, here []device, claims [][][]ask, same []bool) bool {
	switch {
	case a.count == 0:
	case a.on[node] > 0 || a.class == "":
		if a.count > a.on[node] {
			return false
		}
	default:
		claims, same = append(slices.Clip(claims), [][]ask{{{a.class, a.count}}}), append(slices.Clip(same), false)
	}
	return satisfiable(here, claims, same)
}
