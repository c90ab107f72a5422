// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/cri"
)

// fakeRuntime is a container runtime that is ready and reports a cgroup driver.
type fakeRuntime struct {
	runtimeapi.RuntimeServiceClient
	answer *runtimeapi.RuntimeConfigResponse
	err    error
	asked  int
}

func (f *fakeRuntime) Version(context.Context, *runtimeapi.VersionRequest,
	...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "r", RuntimeVersion: "1"}, nil
}

func (f *fakeRuntime) Status(context.Context, *runtimeapi.StatusRequest,
	...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{}, nil
}

func (f *fakeRuntime) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest,
	...grpc.CallOption) (*runtimeapi.RuntimeConfigResponse, error) {
	f.asked++
	return f.answer, f.err
}

func linux(d runtimeapi.CgroupDriver) *runtimeapi.RuntimeConfigResponse {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: d}}
}

// TestCgroupDriver checks that the driver that the runtime reports takes precedence, that the
// configured driver is used if the runtime does not implement the call, and that the kubelet treats
// a runtime whose call fails as not ready and asks it again.
func TestCgroupDriver(t *testing.T) {
	for name, c := range map[string]struct {
		configured string
		runtime    fakeRuntime
		driver     string // the driver that is determined; empty if none is
		losing     bool
	}{
		"SystemdOfTheRuntime":  {"cgroupfs", fakeRuntime{answer: linux(runtimeapi.CgroupDriver_SYSTEMD)}, "systemd", false},
		"CgroupfsOfTheRuntime": {"systemd", fakeRuntime{answer: linux(runtimeapi.CgroupDriver_CGROUPFS)}, "cgroupfs", false},
		"NothingTold":          {"systemd", fakeRuntime{answer: &runtimeapi.RuntimeConfigResponse{}}, "systemd", false},
		"NotImplemented": {"systemd",
			fakeRuntime{err: status.Error(codes.Unimplemented, "unknown method")}, "systemd", true},
		"Unknown":  {"systemd", fakeRuntime{answer: linux(7)}, "", false},
		"NoAnswer": {"systemd", fakeRuntime{err: status.Error(codes.Unavailable, "starting")}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			metrics := prometheus.NewRegistry()
			r := newRuntime(&cri.Client{Runtime: &c.runtime}, nil, Config{
				Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Metrics: metrics,
				Kubelet: &kubeletconfig.KubeletConfiguration{CgroupDriver: c.configured},
			}, func() {})
			_ = r.refresh(t.Context())
			if (r.ready() == nil) != (c.driver != "") {
				t.Errorf("ready: %v", r.ready())
			}
			want := ""
			if c.losing {
				want = `
# HELP kubelet_cri_losing_support [ALPHA] the Kubernetes version that the currently running CRI implementation ` +
					`will lose support on if not upgraded.
# TYPE kubelet_cri_losing_support gauge
kubelet_cri_losing_support{version="1.38.0"} 1
`
			}
			if err := testutil.GatherAndCompare(metrics, strings.NewReader(want)); err != nil {
				t.Error(err)
			}
			if c.driver == "" {
				c.runtime.answer, c.runtime.err, c.driver = linux(runtimeapi.CgroupDriver_SYSTEMD), nil, "systemd"
				_ = r.refresh(t.Context())
			}
			if got, err := r.cgroupDriver(t.Context()); got != c.driver || err != nil || r.ready() != nil {
				t.Errorf("driver %q, %v; ready: %v", got, err, r.ready())
			}
			asked := c.runtime.asked
			c.runtime.answer = linux(runtimeapi.CgroupDriver_CGROUPFS)
			_ = r.refresh(t.Context())
			if got, _ := r.cgroupDriver(t.Context()); got != c.driver || c.runtime.asked != asked {
				t.Errorf("%s after the runtime reports another driver, %d calls", got, c.runtime.asked)
			}
		})
	}
}
