// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
)

const (
	// nodeSelectorAnnotation is the annotation of a namespace with the node selector for its pods.
	nodeSelectorAnnotation = "scheduler.alpha.kubernetes.io/node-selector"
	// clusterNodeSelector is the key, in the configuration, of the node selector for namespaces
	// without the annotation.
	clusterNodeSelector = "clusterDefaultNodeSelector"
)

// nodeSelectors is the plugin PodNodeSelector. It adds the node selector of the namespace to pods.
type nodeSelectors struct {
	namespaces
	// selectors has, by namespace, the node selectors that pods may use, and the default selector
	// under clusterNodeSelector.
	selectors map[string]string
}

func newNodeSelectors(deps Deps) (admission.Interface, error) {
	p := &nodeSelectors{newNamespaces(deps), nil}
	var settings struct {
		Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	}
	if deps.settings != nil {
		err := yaml.NewYAMLOrJSONDecoder(deps.settings, 4096).Decode(&settings)
		if err != nil && !errors.Is(err, io.EOF) {
			// As in Kubernetes, an unreadable configuration does not prevent the start.
			deps.Log.Warn("Failed to read configuration of PodNodeSelector", "err", err)
		}
	}
	p.selectors = settings.Selectors
	return &podPlugin{Handler: admission.NewHandler(admission.Create), admit: p.admit, validate: p.validate}, nil
}

func (p *nodeSelectors) admit(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error {
	own, err := p.compatible(ctx, a, pod)
	if err != nil {
		return err
	}
	pod.Spec.NodeSelector = labels.Merge(own, pod.Spec.NodeSelector)
	return p.validate(ctx, a, pod)
}

// compatible returns the node selector of the namespace. It returns an error if the pod's node
// selector conflicts with it.
func (p *nodeSelectors) compatible(ctx context.Context, a admission.Attributes, pod *corev1.Pod) (labels.Set, error) {
	ns, err := p.get(ctx, a.GetNamespace())
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewInternalError(fmt.Errorf("namespace %s does not exist", a.GetNamespace()))
	}
	if err != nil {
		return nil, err
	}
	text, ok := ns.Annotations[nodeSelectorAnnotation]
	if !ok {
		text = p.selectors[clusterNodeSelector]
	}
	own, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return nil, err
	}
	if labels.Conflicts(own, pod.Spec.NodeSelector) {
		return nil, refusedSelector(a, pod, "pod node label selector conflicts with its namespace node label selector")
	}
	return own, nil
}

func (p *nodeSelectors) validate(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error {
	if _, err := p.compatible(ctx, a, pod); err != nil {
		return err
	}
	allowed, err := labels.ConvertSelectorToLabelsMap(p.selectors[a.GetNamespace()])
	if err != nil || len(allowed) == 0 {
		return err
	}
	for key, value := range pod.Spec.NodeSelector {
		if may, ok := allowed[key]; !ok || may != value {
			return refusedSelector(a, pod, "pod node label selector labels conflict with its namespace whitelist")
		}
	}
	return nil
}

func refusedSelector(a admission.Attributes, pod *corev1.Pod, why string) error {
	return apierrors.NewForbidden(a.GetResource().GroupResource(), pod.Name, errors.New(why))
}
