// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson.dev/apiserver/transcode"
)

// maxShared limits the number of different shared parts. When it is reached, the Reader drops all
// of them. Pods that are already decoded keep their parts; pods that are decoded later share new
// ones.
const maxShared = 1 << 14

var errMalformed = errors.New("malformed pod")

// Reader decodes pods from protobuf messages. It is safe for concurrent use.
type Reader struct {
	pick *pickers
	// annotations has the names of the annotations to keep.
	annotations []string

	mu    sync.Mutex
	words map[string]string
	// labels, owners, specs and has cache the shared parts. The key is the encoded form of the
	// part.
	labels map[string]map[string]string
	owners map[string][]metav1.OwnerReference
	specs  map[string]*v1.PodSpec
	has    map[string]statuses
	buf    []byte
}

// statuses has the statuses of a pod's containers and init containers.
type statuses struct{ containers, init []v1.ContainerStatus }

// NewReader returns a reader that keeps the given annotations of pods. It also keeps the annotation
// that marks the end of the initial list in a watch.
func NewReader(annotations ...string) (*Reader, error) {
	pick, err := newPickers()
	if err != nil {
		return nil, err
	}
	r := &Reader{pick: pick, annotations: append(annotations, metav1.InitialEventsAnnotationKey)}
	r.forget()
	return r, nil
}

func (r *Reader) forget() {
	r.words, r.labels = map[string]string{}, map[string]map[string]string{}
	r.owners, r.specs, r.has = map[string][]metav1.OwnerReference{}, map[string]*v1.PodSpec{}, map[string]statuses{}
}

// Pod decodes a pod. The result does not refer to raw.
func (r *Reader) Pod(raw []byte) (*v1.Pod, error) {
	pod := &v1.Pod{}
	if err := r.Into(pod, raw); err != nil {
		return nil, err
	}
	return pod, nil
}

// Into decodes a pod into pod, which must be empty.
func (r *Reader) Into(pod *v1.Pod, raw []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.words)+len(r.labels)+len(r.owners)+len(r.specs)+len(r.has) >= maxShared {
		r.forget()
	}
	if err := r.unmarshal(pod, r.pick.own, raw); err != nil {
		return err
	}
	labels, err := shared(r, r.labels, r.pick.labels, raw, func(p *v1.Pod) map[string]string { return p.Labels })
	if err != nil {
		return err
	}
	owners, err := shared(r, r.owners, r.pick.owners, raw, func(p *v1.Pod) []metav1.OwnerReference {
		return p.OwnerReferences
	})
	if err != nil {
		return err
	}
	spec, err := shared(r, r.specs, r.pick.spec, raw, sharedSpec)
	if err != nil {
		return err
	}
	has, err := shared(r, r.has, r.pick.has, raw, func(p *v1.Pod) statuses {
		return statuses{p.Status.ContainerStatuses, p.Status.InitContainerStatuses}
	})
	if err != nil {
		return err
	}
	node, host := pod.Spec.NodeName, pod.Spec.Hostname
	pod.Labels, pod.OwnerReferences, pod.Spec = labels, owners, *spec
	pod.Namespace, pod.Spec.NodeName, pod.Spec.Hostname = r.word(pod.Namespace), r.word(node), host
	if matters(raw) {
		var own v1.Pod
		if err := r.unmarshal(&own, r.pick.volumes, raw); err != nil {
			return err
		}
		pod.Spec.Volumes = slices.Clip(slices.DeleteFunc(own.Spec.Volumes, isPlain))
	}
	pod.Annotations = r.kept(pod.Annotations)
	pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses = has.containers, has.init
	// While a resize is infeasible, the requests of a container are those in its status.
	if !resourcehelper.IsPodResizeInfeasible(pod) {
		pod.Status.ContainerStatuses = slimStatuses(has.containers, pod.Spec.Containers)
		pod.Status.InitContainerStatuses = slimStatuses(has.init, pod.Spec.InitContainers)
	}
	if pod.Spec.Resources == nil {
		// Drop the pod-level sums, which no plugin needs beside the values of the containers.
		pod.Status.AllocatedResources, pod.Status.Resources = nil, nil
	}
	if node != "" {
		pod.Status.Conditions = slimConditions(pod.Status.Conditions)
	}
	return nil
}

// unmarshal decodes into pod the part of a pod's message that a picker extracts.
func (r *Reader) unmarshal(pod *v1.Pod, p *transcode.Picker, raw []byte) error {
	buf, ok := p.Append(r.buf[:0], raw)
	r.buf = buf
	if !ok {
		return errMalformed
	}
	if err := pod.Unmarshal(buf); err != nil {
		return fmt.Errorf("pod: %w", err)
	}
	return nil
}

// shared decodes the part of a pod's message that a picker extracts. It returns the part from the
// cache known if possible. Otherwise it decodes the part, converts it with the last argument, and
// adds it to the cache.
func shared[T any](r *Reader, known map[string]T, p *transcode.Picker, raw []byte, of func(*v1.Pod) T) (T, error) {
	buf, ok := p.Append(r.buf[:0], raw)
	r.buf = buf
	if !ok {
		var none T
		return none, errMalformed
	}
	if part, ok := known[string(buf)]; ok {
		return part, nil
	}
	var pod v1.Pod
	if err := pod.Unmarshal(buf); err != nil {
		var none T
		return none, fmt.Errorf("pod: %w", err)
	}
	part := of(&pod)
	known[string(buf)] = part
	return part, nil
}

func (r *Reader) word(w string) string {
	if known, ok := r.words[w]; ok {
		return known
	}
	r.words[w] = w
	return w
}

// sharedSpec returns the pod's spec without container ports that have no host port.
func sharedSpec(p *v1.Pod) *v1.PodSpec {
	for _, containers := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			c := &containers[i]
			if !slices.ContainsFunc(c.Ports, func(p v1.ContainerPort) bool { return p.HostPort != 0 }) {
				c.Ports = nil
			}
		}
	}
	return &p.Spec
}

func (r *Reader) kept(annotations map[string]string) map[string]string {
	var out map[string]string
	for _, name := range r.annotations {
		if value, has := annotations[name]; has {
			if out == nil {
				out = map[string]string{}
			}
			out[name] = value
		}
	}
	return out
}

// slimConditions returns the conditions without those about scheduling and readiness, which no plugin
// reads.
func slimConditions(conditions []v1.PodCondition) []v1.PodCondition {
	var out []v1.PodCondition
	for i := range conditions {
		switch conditions[i].Type {
		case v1.PodScheduled, v1.PodReadyToStartContainers, v1.PodInitialized, v1.ContainersReady, v1.PodReady:
		default:
			out = append(out, conditions[i])
		}
	}
	return out
}

// slimStatuses returns statuses, or nil if every container has the resources that it requests.
func slimStatuses(statuses []v1.ContainerStatus, containers []v1.Container) []v1.ContainerStatus {
	for i := range statuses {
		if !asAsked(&statuses[i], containers) {
			return statuses
		}
	}
	return nil
}

// asAsked reports whether a container has the resources that it requests.
func asAsked(s *v1.ContainerStatus, containers []v1.Container) bool {
	i := slices.IndexFunc(containers, func(c v1.Container) bool { return c.Name == s.Name })
	if i < 0 {
		return false
	}
	same := func(have v1.ResourceList) bool {
		return have == nil ||
			maps.EqualFunc(have, containers[i].Resources.Requests, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
	}
	return same(s.AllocatedResources) && (s.Resources == nil || same(s.Resources.Requests))
}

// list decodes a list of pods.
func (r *Reader) list(raw []byte) (*v1.PodList, error) {
	out := &v1.PodList{}
	for len(raw) > 0 {
		number, typ, tag := protowire.ConsumeTag(raw)
		if tag < 0 {
			return nil, errMalformed
		}
		size := protowire.ConsumeFieldValue(number, typ, raw[tag:])
		if size < 0 {
			return nil, errMalformed
		}
		value, _ := protowire.ConsumeBytes(raw[tag:])
		raw = raw[tag+size:]
		switch {
		case typ != protowire.BytesType:
		case number == 1:
			if err := out.Unmarshal(
				append(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType),
					uint64(len(value))), value...)); err != nil {
				return nil, fmt.Errorf("list of pods: %w", err)
			}
		case number == 2:
			out.Items = append(out.Items, v1.Pod{})
			if err := r.Into(&out.Items[len(out.Items)-1], value); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
