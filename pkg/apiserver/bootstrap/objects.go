// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// SystemNamespaces returns the namespaces that every cluster has.
func SystemNamespaces() []string {
	return []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease, metav1.NamespaceDefault}
}

// Namespaces creates the system namespaces.
func Namespaces(ctx context.Context, client kubernetes.Interface) error {
	var tasks []func() error
	for _, name := range SystemNamespaces() {
		tasks = append(tasks, func() error {
			api := client.CoreV1().Namespaces()
			if _, err := api.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return named("namespace", name, err)
			}
			_, err := api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return named("namespace", name, ignoreExists(err))
		})
	}
	return parallel(ctx, 4, tasks)
}

// systemPriorityClasses returns the priority classes system-cluster-critical and
// system-node-critical.
func systemPriorityClasses() []*schedulingv1.PriorityClass {
	lower := corev1.PreemptLowerPriority
	return []*schedulingv1.PriorityClass{{
		ObjectMeta:       metav1.ObjectMeta{Name: "system-node-critical"},
		Value:            2000001000,
		Description:      "Used for system critical pods that must not be moved from their current node.",
		PreemptionPolicy: &lower,
	}, {
		ObjectMeta: metav1.ObjectMeta{Name: "system-cluster-critical"},
		Value:      2000000000,
		Description: "Used for system critical pods that must run in the cluster, but can be moved to " +
			"another node if necessary.",
		PreemptionPolicy: &lower,
	}}
}

// PriorityClasses creates the priority classes for system pods.
func PriorityClasses(ctx context.Context, client kubernetes.Interface) error {
	var tasks []func() error
	for _, class := range systemPriorityClasses() {
		tasks = append(tasks, func() error {
			api := client.SchedulingV1().PriorityClasses()
			if _, err := api.Get(ctx, class.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return named("priority class", class.Name, err)
			}
			_, err := api.Create(ctx, class, metav1.CreateOptions{})
			return named("priority class", class.Name, ignoreExists(err))
		})
	}
	return parallel(ctx, 2, tasks)
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
