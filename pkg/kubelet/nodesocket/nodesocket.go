// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodesocket serves gRPC at sockets of the node, for agents that run on it. Only users who may open
// the socket's directory can connect.
package nodesocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The rate limit of calls to the kubelet's sockets, as in Kubernetes.
const (
	perSecond = 100
	burst     = 10
)

// Limit returns an interceptor that rejects more than 100 calls per second. It does not limit streams.
func Limit() grpc.UnaryServerInterceptor {
	limit := rate.NewLimiter(perSecond, burst)
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if !limit.Allow() {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return next(ctx, req)
	}
}

// Serve serves at a socket until ctx ends. It replaces the socket of a process that was killed.
func Serve(ctx context.Context, socket string, server *grpc.Server) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve %s: %w", socket, err)
	}
	return nil
}
