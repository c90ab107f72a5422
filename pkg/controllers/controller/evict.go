// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Evict sets a pod's DisruptionTarget condition with the given reason and message, and deletes the
// pod. It returns nil if the pod was already deleted or replaced by another pod of the same name.
func Evict(
	ctx context.Context, client kubernetes.Interface, pod *v1.Pod, reason, message string, now time.Time,
) error {
	pods := client.CoreV1().Pods(pod.Namespace)
	if c := Condition(pod, v1.DisruptionTarget); c == nil || c.Status != v1.ConditionTrue {
		next := pod.DeepCopy()
		others := slices.DeleteFunc(next.Status.Conditions, func(o v1.PodCondition) bool {
			return o.Type == v1.DisruptionTarget
		})
		next.Status.Conditions = append(others, v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(now), ObservedGeneration: pod.Generation,
		})
		if _, err := pods.UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("condition: %w", err)
		}
	}
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	err := pods.Delete(ctx, pod.Name, options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("evict: %w", err)
	}
	return nil
}
