// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"
	nodelisters "k8s.io/client-go/listers/node/v1"
)

// runtimeClasses is the plugin RuntimeClass. It sets the overhead and scheduling constraints that
// the runtime class of a pod defines.
type runtimeClasses struct {
	client kubernetes.Interface
	lister nodelisters.RuntimeClassLister
}

func newRuntimeClass(deps Deps) (admission.Interface, error) {
	informer := deps.Informers.Node().V1().RuntimeClasses()
	p := &runtimeClasses{deps.Client, informer.Lister()}
	h := admission.NewHandler(admission.Create)
	h.SetReadyFunc(informer.Informer().HasSynced)
	return &podPlugin{Handler: h, admit: p.admit, validate: p.validate}, nil
}

// class returns the runtime class of the pod, or nil if the pod names none.
func (p *runtimeClasses) class(ctx context.Context, a admission.Attributes,
	pod *corev1.Pod) (*nodev1.RuntimeClass, error) {
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" {
		return nil, nil
	}
	name := *pod.Spec.RuntimeClassName
	class, err := p.lister.Get(name)
	if apierrors.IsNotFound(err) {
		class, err = p.client.NodeV1().RuntimeClasses().Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, admission.NewForbidden(a, fmt.Errorf("pod rejected: RuntimeClass %q not found", name))
	}
	return class, err
}

func mismatch(a admission.Attributes) error {
	return admission.NewForbidden(a,
		errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
}

func (p *runtimeClasses) admit(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error {
	class, err := p.class(ctx, a, pod)
	if err != nil || class == nil {
		return err
	}
	if class.Overhead != nil {
		if len(pod.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
			return mismatch(a)
		}
		pod.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
	}
	if class.Scheduling == nil {
		return nil
	}
	for k, v := range class.Scheduling.NodeSelector {
		if had, ok := pod.Spec.NodeSelector[k]; ok && had != v {
			return admission.NewForbidden(a,
				fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", k, v, k, had))
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[k] = v
	}
	pod.Spec.Tolerations = mergeTolerations(pod.Spec.Tolerations, class.Scheduling.Tolerations)
	return nil
}

func (p *runtimeClasses) validate(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error {
	class, err := p.class(ctx, a, pod)
	if err != nil {
		return err
	}
	if class != nil && class.Overhead != nil {
		if !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
			return mismatch(a)
		}
		return nil
	}
	if pod.Spec.Overhead != nil {
		return admission.NewForbidden(a,
			errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
	}
	return nil
}
