// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/cri"
)

// mute is an image service with one image. While hangs is true, it does not answer.
type mute struct {
	runtimeapi.UnimplementedImageServiceServer
	hangs bool
	end   chan struct{}
}

// ListImages implements runtimeapi.ImageServiceServer. It hangs until the call or the test ends if
// hangs is true.
func (m *mute) ListImages(ctx context.Context, _ *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse,
	error) {
	if m.hangs {
		select {
		case <-ctx.Done():
		case <-m.end:
		}
		return nil, ctx.Err()
	}
	return &runtimeapi.ListImagesResponse{
		Images: []*runtimeapi.Image{{Id: "i", RepoTags: []string{"img:1"}, Size: 5}}}, nil
}

// TestImagesOfAHungRuntime checks that images returns the previous list of images, without waiting,
// if the runtime is known to be down, and after a timeout if the runtime hangs.
func TestImagesOfAHungRuntime(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	m, server := &mute{end: make(chan struct{})}, grpc.NewServer()
	runtimeapi.RegisterImageServiceServer(server, m)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	defer close(m.end)
	client, err := cri.Dial(cri.Target{Endpoint: socket, Timeout: time.Minute},
		cri.NewMetrics(clock.Real(), prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	r := newRuntime(client, nil, Config{Clock: clock.Real(), Kubelet: &kubeletconfig.KubeletConfiguration{}}, nil)
	r.known.state = nil
	if got := r.images(t.Context()); len(got) != 1 || got[0].Names[0] != "img:1" {
		t.Fatalf("images %v", got)
	}
	m.hangs, r.known.state = true, errors.New("container runtime is down")
	if got := r.images(t.Context()); len(got) != 1 {
		t.Errorf("images of a runtime that is down: %v", got)
	}
	r.known.state = nil // the kubelet has not noticed yet that the runtime hangs
	r.timeout = 10 * time.Millisecond
	if got := r.images(t.Context()); len(got) != 1 {
		t.Errorf("images of a runtime that hangs: %v", got)
	}
}
