// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package env makes the environment of a container: service variables, envFrom, env with
// its sources, and $(VAR) expansion, in the order and with the precedence of Kubernetes.
package env

import (
	"context"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Objects gives the objects that variables are taken from.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// Input is what the environment of a container is made from.
type Input struct {
	Pod       *v1.Pod
	Container *v1.Container
	// Services are all the services of the pod's namespace and of the namespace "default".
	Services []*v1.Service
	// PodIPs and HostIPs are the addresses known now, the primary first.
	PodIPs, HostIPs []string
	// Allocatable stands for limits that the container does not set.
	Allocatable v1.ResourceList
	Objects     Objects
	// VolumePath gives the node's path of one of the pod's volumes, for fileKeyRef.
	VolumePath func(volume string) (string, bool)
	// Warn records an event on the pod; it may be nil.
	Warn func(reason, message string)
}

// Make returns the container's environment, sorted by name.
func Make(ctx context.Context, in Input) ([]*runtimeapi.KeyValue, error) { return nil, nil }

// Expand replaces $(NAME) by the value in env, and $$ by $; what is not in env stays as it is written.
func Expand(s string, env []*runtimeapi.KeyValue) string { return s }

// ExpandAll is Expand for each of a command or its arguments.
func ExpandAll(words []string, env []*runtimeapi.KeyValue) []string { return words }
