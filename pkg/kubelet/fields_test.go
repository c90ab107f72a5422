// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/cri"
)

func TestMaxPods(t *testing.T) {
	for _, tc := range []struct{ most, perCore, want int32 }{{110, 0, 110}, {110, 10, 40}, {30, 10, 30},
		{110, 1 << 30, 110}} {
		c := &kubeletconfig.KubeletConfiguration{MaxPods: tc.most, PodsPerCore: tc.perCore}
		if got := maxPods(c, 4); got != tc.want {
			t.Errorf("%d pods at most, %d for each of 4 cores: %d", tc.most, tc.perCore, got)
		}
	}
}

// sink records the order of the writes of events. turns, below, is a rate limiter that adds "turn"
// to the same list each time a write waits for it.
type sink struct{ order *[]string }

func (s sink) note(e *v1.Event, what string) (*v1.Event, error) {
	*s.order = append(*s.order, what)
	return e, nil
}
func (s sink) Create(e *v1.Event) (*v1.Event, error)          { return s.note(e, "create") }
func (s sink) Update(e *v1.Event) (*v1.Event, error)          { return s.note(e, "update") }
func (s sink) Patch(e *v1.Event, _ []byte) (*v1.Event, error) { return s.note(e, "patch") }

type turns struct {
	flowcontrol.RateLimiter
	order *[]string
}

func (t turns) Accept() { *t.order = append(*t.order, "turn") }

// TestEventRate checks that each write of an event waits for the rate limiter, and that eventRate
// returns a limiter only if the configured rate is not 0.
func TestEventRate(t *testing.T) {
	var order []string
	s := limitedSink{sink{&order}, turns{order: &order}}
	for _, write := range []func() (*v1.Event, error){
		func() (*v1.Event, error) { return s.Create(nil) }, func() (*v1.Event, error) { return s.Update(nil) },
		func() (*v1.Event, error) { return s.Patch(nil, nil) },
	} {
		if _, err := write(); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"turn", "create", "turn", "update", "turn", "patch"}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
	for qps, bound := range map[int32]bool{0: false, 50: true} {
		if r := eventRate(&kubeletconfig.KubeletConfiguration{
			EventRecordQPS: &qps, EventBurst: 100,
		}); (r != nil) != bound || bound && r.QPS() != 50 {
			t.Errorf("%d a second: %v", qps, r)
		}
	}
}

// TestRuntimeRequestTimeout checks that the image service may have an endpoint of its own, and that
// a call to the runtime ends at the configured timeout.
func TestRuntimeRequestTimeout(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	m, server := &mute{hangs: true, end: make(chan struct{})}, grpc.NewServer()
	runtimeapi.RegisterImageServiceServer(server, m)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	defer close(m.end)
	target := cri.Target{Endpoint: "unix:///nowhere", Images: "unix://" + socket, Timeout: time.Millisecond}
	client, err := cri.Dial(target, cri.NewMetrics(clock.Real(), prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.Images.ListImages(t.Context(), &runtimeapi.ListImagesRequest{}); status.Code(
		err) != codes.DeadlineExceeded {
		t.Errorf("error %v", err)
	}
}
