// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Causes in the error for a rejected resize, with Kubernetes' names.
const (
	causeNodeCapacity        metav1.CauseType = "NodeCapacity"
	causeUnsupportedPlatform metav1.CauseType = "UnsupportedPlatform"
)

// podResize rejects a resize if the pod would request more than the allocatable resources of its
// node. The kubelet later checks whether other pods leave enough of these.
type podResize struct{ client kubernetes.Interface }

func newPodResize(deps Deps) (admission.Interface, error) {
	p := &podResize{deps.Client}
	return &typed[*corev1.Pod]{Handler: admission.NewHandler(admission.Update), resource: "pods",
		subresource: "resize", validate: p.validate}, nil
}

func (p *podResize) validate(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error {
	old, err := podBefore(a)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" || equality.Semantic.DeepEqual(old.Spec, pod.Spec) {
		return nil
	}
	node, err := boundNode(ctx, a, p.client, pod)
	if err != nil {
		return err
	}
	if system, ok := node.Labels[corev1.LabelOSStable]; ok && system != "linux" {
		return refusedResize(a, causeUnsupportedPlatform,
			fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", node.Name, system))
	}
	if err := within(pod, node.Status.Allocatable); err != nil {
		return refusedResize(a, causeNodeCapacity, err)
	}
	return nil
}

// podBefore returns the stored pod that the request updates.
func podBefore(a admission.Attributes) (*corev1.Pod, error) {
	old, ok := a.GetOldObject().(*corev1.Pod)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected an old pod but got a %T", a.GetOldObject()))
	}
	return old, nil
}

// boundNode returns the node to which the pod is bound. If it cannot be read, the result is a
// Forbidden error.
func boundNode(ctx context.Context, a admission.Attributes, client kubernetes.Interface,
	pod *corev1.Pod) (*corev1.Node, error) {
	node, err := client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{ResourceVersion: "0"})
	switch {
	case apierrors.IsNotFound(err):
		return nil, admission.NewForbidden(a, fmt.Errorf("node %q not found", pod.Spec.NodeName))
	case err != nil:
		return nil, admission.NewForbidden(a, fmt.Errorf("failed to get node %q: %w", pod.Spec.NodeName, err))
	}
	return node, nil
}

// within returns an error if the requests of the pod exceed allocatable.
func within(pod *corev1.Pod, allocatable corev1.ResourceList) error {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	var beyond []string
	if asked, has := requests.Cpu(), allocatable.Cpu(); asked.Cmp(*has) > 0 {
		beyond = append(beyond, fmt.Sprintf("cpu, requested: %d, allocatable: %d", asked.MilliValue(), has.MilliValue()))
	}
	if asked, has := requests.Memory(), allocatable.Memory(); asked.Cmp(*has) > 0 {
		beyond = append(beyond, fmt.Sprintf("memory, requested: %d, allocatable: %d", asked.Value(), has.Value()))
	}
	if len(beyond) == 0 {
		return nil
	}
	return fmt.Errorf("node didn't have enough allocatable resources: %s", strings.Join(beyond, "; "))
}

func refusedResize(a admission.Attributes, cause metav1.CauseType, reason error) error {
	err := admission.NewForbidden(a, reason)
	status := (*apierrors.StatusError)(nil)
	if errors.As(err, &status) && status.ErrStatus.Details != nil {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}
