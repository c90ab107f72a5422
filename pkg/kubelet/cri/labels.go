// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Labels of sandboxes and containers, and annotations of containers, with the names that Kubernetes
// uses.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	annotationHash              = "io.kubernetes.container.hash"
	annotationRestartCount      = "io.kubernetes.container.restartCount"
	annotationMessagePath       = "io.kubernetes.container.terminationMessagePath"
	annotationMessagePolicy     = "io.kubernetes.container.terminationMessagePolicy"
	annotationPorts             = "io.kubernetes.container.ports"
	annotationPreStop           = "io.kubernetes.container.preStopHandler"
	annotationDeletionGrace     = "io.kubernetes.pod.deletionGracePeriod"
	annotationTerminationPeriod = "io.kubernetes.pod.terminationGracePeriod"

	// annotationEpoch is the annotation for the pod's epoch: how often all containers of the pod
	// had been restarted together when the container was created. Kubernetes does not have this
	// annotation.
	annotationEpoch = "keelson.dev/epoch"
)

func podLabels(pod *v1.Pod) map[string]string {
	l := maps.Clone(pod.Labels)
	if l == nil {
		l = map[string]string{}
	}
	l[LabelPodName], l[LabelPodNamespace], l[LabelPodUID] = pod.Name, pod.Namespace, string(pod.UID)
	return l
}

func containerLabels(pod *v1.Pod, c *v1.Container) map[string]string {
	return map[string]string{
		LabelPodName: pod.Name, LabelPodNamespace: pod.Namespace, LabelPodUID: string(pod.UID), LabelContainerName: c.Name,
	}
}

func containerAnnotations(pod *v1.Pod, c *v1.Container, restarts int) map[string]string {
	a := map[string]string{
		annotationHash:          Hash(c),
		annotationRestartCount:  strconv.Itoa(restarts),
		annotationMessagePath:   c.TerminationMessagePath,
		annotationMessagePolicy: string(c.TerminationMessagePolicy),
	}
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		a[annotationDeletionGrace] = strconv.FormatInt(*g, 10)
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		a[annotationTerminationPeriod] = strconv.FormatInt(*g, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		a[annotationPreStop] = encode(c.Lifecycle.PreStop)
	}
	if len(c.Ports) > 0 {
		a[annotationPorts] = encode(c.Ports)
	}
	return a
}

// Epoch returns the epoch of the pod in which a container was created. It reads the epoch from the
// container's annotations.
func Epoch(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[annotationEpoch], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Hash returns a hash of the container's name and image. If it changes, the container must be
// replaced by a new one.
func Hash(c *v1.Container) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s\x00%s", c.Name, c.Image)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// encode returns v as JSON. Encoding never fails, because all values have types of the API.
func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}
