// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"context"
	"errors"
	"maps"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/kubelet/source"
)

// mirrors creates missing mirror pods, and deletes those that are outdated, terminating or without
// a static pod. The result done is false if something has to be retried.
func (m *Manager) mirrors(ctx context.Context) (done bool, err error) {
	seen, known := m.cfg.Seen()
	node := m.cfg.Node()
	if !known || node == nil {
		return len(m.Pods()) == 0, nil // the API has not been read yet
	}
	there := map[string]bool{}
	var errs []error
	for _, pod := range seen {
		there[key(pod)] = true
		if source.Mirror(pod) && !m.isCurrent(pod) {
			errs = append(errs, m.drop(ctx, pod))
		}
	}
	for _, pod := range m.Pods() {
		if !there[key(pod)] {
			errs = append(errs, m.create(ctx, pod, node))
		}
	}
	err = errors.Join(errs...)
	return err == nil, err
}

// isCurrent reports whether a mirror pod shows the current version of a static pod, and is not being
// deleted. It may show a pod of a source that has not been read yet.
func (m *Manager) isCurrent(mirror *v1.Pod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod := m.want[key(mirror)]
	if pod == nil {
		return !m.Synced() // a source that has not been read yet may contain the pod
	}
	return pod.Annotations[source.AnnotationHash] == mirror.Annotations[source.AnnotationMirror] &&
		mirror.DeletionTimestamp == nil
}

func (m *Manager) drop(ctx context.Context, mirror *v1.Pod) error {
	zero := int64(0)
	err := m.cfg.Client.CoreV1().Pods(mirror.Namespace).Delete(ctx, mirror.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &mirror.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return describe(mirror, err)
	}
	return nil
}

func (m *Manager) create(ctx context.Context, pod *v1.Pod, node *v1.Node) error {
	mirror := pod.DeepCopy()
	mirror.UID = ""
	mirror.Annotations = maps.Clone(pod.Annotations)
	mirror.Annotations[source.AnnotationMirror] = pod.Annotations[source.AnnotationHash]
	controller := true
	mirror.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name,
		UID: node.UID, Controller: &controller}}
	_, err := m.cfg.Client.CoreV1().Pods(mirror.Namespace).Create(ctx, mirror, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return describe(pod, err)
	}
	return nil
}

// Mirror returns the mirror pod of a static pod among the pods of the API. It returns nil if there
// is none.
func Mirror(seen []*v1.Pod, pod *v1.Pod) *v1.Pod {
	for _, p := range seen {
		if p.Namespace == pod.Namespace && p.Name == pod.Name &&
			p.Annotations[source.AnnotationMirror] == pod.Annotations[source.AnnotationHash] {
			return p
		}
	}
	return nil
}
