// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podresources serves Kubernetes' pod-resources API, versions v1 and v1alpha1, at a Unix
// socket of the node. The API lists the devices, CPUs and memory that are assigned to containers.
// Agents for monitoring and networks use it. It is read-only, and the server rejects more than 100
// requests per second.
package podresources

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"keelson.dev/keelson/pkg/kubelet/nodesocket"
)

// Source provides what the server reports.
type Source interface {
	// Pods returns the pods of this node whose containers have not all ended.
	Pods() []*v1.Pod
	// Container returns the hardware that is assigned to a container. It leaves the field Name
	// empty.
	Container(pod *v1.Pod, c *v1.Container) *api.ContainerResources
	// Allocatable returns the hardware that can be assigned to containers.
	Allocatable() *api.AllocatableResourcesResponse
}

// Server serves the pod resources API.
type Server struct {
	api.UnimplementedPodResourcesListerServer
	source  Source
	socket  string
	metrics metrics
}

// New returns a Server that listens on the path socket once Run is called.
func New(socket string, source Source, reg prometheus.Registerer) *Server {
	return &Server{socket: socket, source: source, metrics: newMetrics(reg)}
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(nodesocket.Limit(), func(ctx context.Context, req any,
		info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		answer, err := next(ctx, req)
		s.metrics.count(info.FullMethod, err)
		return answer, err
	}))
	api.RegisterPodResourcesListerServer(server, s)
	v1alpha1.RegisterPodResourcesListerServer(server, alpha{source: s.source})
	if err := nodesocket.Serve(ctx, s.socket, server); err != nil {
		return fmt.Errorf("pod resources: %w", err)
	}
	return nil
}

// List returns the hardware that is assigned to each pod.
func (s *Server) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	out := &api.ListPodResourcesResponse{}
	for _, pod := range s.source.Pods() {
		out.PodResources = append(out.PodResources, s.pod(pod))
	}
	return out, nil
}

// Get returns the hardware that is assigned to one pod.
func (s *Server) Get(_ context.Context, r *api.GetPodResourcesRequest) (*api.GetPodResourcesResponse, error) {
	for _, pod := range s.source.Pods() {
		if pod.Namespace == r.GetPodNamespace() && pod.Name == r.GetPodName() {
			return &api.GetPodResourcesResponse{PodResources: s.pod(pod)}, nil
		}
	}
	return nil, fmt.Errorf("pod %s in namespace %s not found", r.GetPodName(), r.GetPodNamespace())
}

// GetAllocatableResources returns the hardware that can be assigned to pods.
func (s *Server) GetAllocatableResources(context.Context, *api.AllocatableResourcesRequest) (
	*api.AllocatableResourcesResponse, error) {
	return s.source.Allocatable(), nil
}

// pod returns the hardware that is assigned to the main containers and sidecars of a pod.
func (s *Server) pod(pod *v1.Pod) *api.PodResources {
	out := &api.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	add := func(c *v1.Container) {
		has := s.source.Container(pod, c)
		has.Name = c.Name
		out.Containers = append(out.Containers, has)
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}
