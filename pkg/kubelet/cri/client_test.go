// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// slow is a container runtime that takes some time to create a sandbox or container, and that fails
// if its caller cancels the call.
type slow struct {
	runtimeapi.RuntimeServiceClient
	takes                time.Duration
	begun, made, stopped int
}

func (s *slow) make(ctx context.Context) error {
	s.begun++
	select {
	case <-ctx.Done():
		s.stopped++
		return ctx.Err()
	case <-time.After(s.takes):
		s.made++
		return nil
	}
}

func (s *slow) RunPodSandbox(ctx context.Context, _ *runtimeapi.RunPodSandboxRequest,
	_ ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	return &runtimeapi.RunPodSandboxResponse{}, s.make(ctx)
}

func (s *slow) CreateContainer(ctx context.Context, _ *runtimeapi.CreateContainerRequest,
	_ ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	return &runtimeapi.CreateContainerResponse{}, s.make(ctx)
}

func (s *slow) StartContainer(ctx context.Context, _ *runtimeapi.StartContainerRequest,
	_ ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	return &runtimeapi.StartContainerResponse{}, s.make(ctx)
}

// TestBegunCallsFinish checks calls that create something and whose context ends meanwhile: they
// may continue for a limited time. With a context that has already ended, no call begins.
func TestBegunCallsFinish(t *testing.T) {
	calls := map[string]func(*Client, context.Context) error{
		"sandbox": func(c *Client, ctx context.Context) error { _, err := c.RunSandbox(ctx, nil, ""); return err },
		"container": func(c *Client, ctx context.Context) error {
			_, err := c.CreateContainer(ctx, "", nil, nil)
			return err
		},
		"start": func(c *Client, ctx context.Context) error { return c.StartContainer(ctx, "") },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &slow{takes: 10 * time.Second}
				c := &Client{timeout: 2 * time.Minute, Runtime: r}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := call(c, ctx); err != nil || r.made != 1 {
					t.Errorf("given up after 1 s of 10: %v", err)
				}
				if err := call(c, ctx); err == nil || r.begun != 1 {
					t.Errorf("begun by a caller that has given up: %v", err)
				}
				r.takes = time.Hour
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begin := time.Now()
				if err := call(c, ctx); err == nil || r.stopped != 1 || time.Since(begin) != time.Second+finishing {
					t.Errorf("a runtime that hangs: %v after %v", err, time.Since(begin))
				}
			})
		})
	}
}
