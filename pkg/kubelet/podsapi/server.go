// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podsapi serves Kubernetes' API of the pods on a node, v1alpha1, at a socket of the node. Agents
// on the node read pods from it, with their newest statuses, even if the API server cannot be reached. It
// changes nothing.
//
// A watch that does not keep up is ended, so that it cannot delay the kubelet.
package podsapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"keelson.dev/keelson/pkg/kubelet/nodesocket"
)

// Source provides the node's pods.
type Source interface {
	// Ready reports whether all pods of the node are known.
	Ready() bool
	// Pods returns the pods as they were read from the API and from the sources of static pods.
	Pods() []*v1.Pod
	// Status returns the newest status of a pod, if this process has determined one.
	Status(uid types.UID) (v1.PodStatus, bool)
}

// Server serves the pods API to programs on the node.
type Server struct {
	api.UnimplementedPodsServer
	socket  string
	source  Source
	changes *Changes
	metrics metrics
}

// New returns a Server of the pods API for a socket.
func New(socket string, source Source, changes *Changes, reg prometheus.Registerer) *Server {
	reg.MustRegister(changes.dropped)
	return &Server{socket: socket, source: source, changes: changes, metrics: newMetrics(reg)}
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(nodesocket.Limit(), func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
			next grpc.UnaryHandler) (any, error) {
			answer, err := next(ctx, req)
			s.metrics.count(info.FullMethod, err)
			return answer, err
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
			next grpc.StreamHandler) error {
			err := next(srv, stream)
			s.metrics.count(info.FullMethod, err)
			return err
		}))
	api.RegisterPodsServer(server, s)
	if err := nodesocket.Serve(ctx, s.socket, server); err != nil {
		return fmt.Errorf("pods API: %w", err)
	}
	return nil
}

// ready returns nil if the kubelet knows all pods of the node. Otherwise it returns the error with
// which the server answers calls.
func (s *Server) ready() error {
	if s.source.Ready() {
		return nil
	}
	return status.Error(codes.FailedPrecondition, "Kubelet is initializing")
}

// ListPods implements the API. Its pods are in the order of their UIDs.
func (s *Server) ListPods(context.Context, *api.ListPodsRequest) (*api.ListPodsResponse, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	out := &api.ListPodsResponse{}
	for _, pod := range s.pods() {
		data, err := s.encode(pod)
		if err != nil {
			return nil, err
		}
		out.Pods = append(out.Pods, data)
	}
	return out, nil
}

// GetPod implements the API.
func (s *Server) GetPod(_ context.Context, r *api.GetPodRequest) (*api.GetPodResponse, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	for _, pod := range s.source.Pods() {
		if string(pod.UID) == r.GetPodUID() {
			data, err := s.encode(pod)
			return &api.GetPodResponse{Pod: data}, err
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", r.GetPodUID())
}

// WatchPods implements the API. It sends all pods, then an event that says so, and then changes.
func (s *Server) WatchPods(_ *api.WatchPodsRequest, stream grpc.ServerStreamingServer[api.WatchPodsEvent]) error {
	if err := s.ready(); err != nil {
		return err
	}
	changes, stop := s.changes.watch()
	defer stop()
	for _, pod := range s.pods() {
		data, err := s.encode(pod)
		if err != nil {
			return err
		}
		if err := stream.Send(&api.WatchPodsEvent{Type: api.EventType_ADDED, Pod: data}); err != nil {
			return err
		}
	}
	if err := stream.Send(&api.WatchPodsEvent{Type: api.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case event, ok := <-changes:
			if !ok {
				return status.Error(codes.ResourceExhausted, "watch client channel closed")
			}
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
}

// pods returns the pods in the order of their UIDs.
func (s *Server) pods() []*v1.Pod {
	list := slices.Clone(s.source.Pods())
	slices.SortFunc(list, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return list
}

// encode returns a pod with its newest status. A pod whose status this process does not know yet is not
// reported as ready, whatever an earlier process wrote.
func (s *Server) encode(pod *v1.Pod) ([]byte, error) {
	out := *pod
	if now, ok := s.source.Status(pod.UID); ok {
		out.Status = now
	} else {
		out.Status = *pod.Status.DeepCopy()
		out.Status.Phase = cmp.Or(out.Status.Phase, v1.PodPending)
		for i := range out.Status.Conditions {
			if c := &out.Status.Conditions[i]; c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
				c.Status, c.Reason = v1.ConditionFalse, "ContainersNotReady"
				c.Message = "Kubelet is initializing pod containers"
			}
		}
	}
	return marshal(&out)
}

func marshal(pod *v1.Pod) ([]byte, error) {
	data, err := pod.Marshal()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "failed to marshal pod: %v", err)
	}
	return data, nil
}
