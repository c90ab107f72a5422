// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// getter reads the objects to which tokens are bound, by requests to the server itself. The server
// answers these requests from its watch caches, but never with a state that is older than the
// request.
type getter struct{ client kubernetes.Interface }

func (g getter) ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return g.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (g getter) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return g.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (g getter) Pod(ctx context.Context, namespace, name string) (*metav1.ObjectMeta, error) {
	pod, err := g.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return &pod.ObjectMeta, nil
}

func (g getter) Node(ctx context.Context, name string) (*metav1.ObjectMeta, error) {
	node, err := g.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return &node.ObjectMeta, nil
}
