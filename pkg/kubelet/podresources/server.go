// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podresources serves Kubernetes' pod-resources API, versions v1 and v1alpha1, at a Unix
// socket of the node. The API lists the devices, CPUs and memory that are assigned to containers.
// Agents for monitoring and networks use it. It only reads, and at most 100 requests per second.
package podresources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// The rate limit of requests, the same as in Kubernetes.
const (
	perSecond = 100
	burst     = 10
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

// Server serves the API.
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
	if err := os.MkdirAll(filepath.Dir(s.socket), 0o750); err != nil {
		return fmt.Errorf("pod resources: %w", err)
	}
	if err := os.Remove(s.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("pod resources: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", s.socket)
	if err != nil {
		return fmt.Errorf("pod resources: %w", err)
	}
	limit := rate.NewLimiter(perSecond, burst)
	server := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
			next grpc.UnaryHandler) (any, error) {
			if !limit.Allow() {
				return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
			}
			answer, err := next(ctx, req)
			s.metrics.count(info.FullMethod, err)
			return answer, err
		}))
	api.RegisterPodResourcesListerServer(server, s)
	v1alpha1.RegisterPodResourcesListerServer(server, alpha{source: s.source})
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve pod resources: %w", err)
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
