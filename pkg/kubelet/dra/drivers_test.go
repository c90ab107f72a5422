// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1"
	"k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	api "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"keelson.dev/keelson/pkg/kubelet/plugins"
)

// serveWith serves a driver at a new socket until the caller calls stop.
func serveWith(t *testing.T, register func(*grpc.Server)) (endpoint string, stop func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "k") // short, because the path of a socket has a maximum length
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	endpoint = filepath.Join(dir, "s")
	l, err := net.Listen("unix", endpoint)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return endpoint, s.Stop
}

// TestOlderDriver checks that a driver that supports only version v1beta1 of the API is called with
// this version, and that a device that it reports for a subrequest belongs to the request.
func TestOlderDriver(t *testing.T) {
	d := &fakeDriver{request: "two/second"}
	endpoint, _ := serveWith(t,
		func(s *grpc.Server) { v1beta1.RegisterDRAPluginServer(s, v1beta1.V1ServerWrapper{DRAPluginServer: d}) })
	m := manager(t, filepath.Join(t.TempDir(), "state"), claimOf("one", "a"))
	defer m.closeAll()
	if err := m.Register(t.Context(),
		plugins.Plugin{Name: "driver", Endpoint: endpoint,
			Versions: []string{"v1alpha7.DRAPlugin", v1beta1.DRAPluginService}}); err != nil {
		t.Fatal(err)
	}
	pod := podOf("a", "one")
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if got, err := m.Container(pod, &pod.Spec.Containers[1]); err != nil ||
		strings.Join(got, ",") != "vendor/class=alternative,vendor/class=2,vendor/class=all" {
		t.Errorf("%v, %v", got, err)
	}
}

// TestReplacedDriver checks which process of a driver is called. While two processes are
// registered, exactly one of them is called. After the later one has unregistered, the earlier one
// is called.
func TestReplacedDriver(t *testing.T) {
	first, second := &fakeDriver{}, &fakeDriver{}
	m := manager(t, filepath.Join(t.TempDir(), "state"), claimOf("one", "a"), claimOf("two", "a"))
	defer m.closeAll()
	one, two := first.serve(t), second.serve(t)
	for _, p := range []plugins.Plugin{one, two} {
		if err := m.Register(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Register(t.Context(), two); err == nil {
		t.Error("an endpoint is registered twice")
	}
	if err := m.Prepare(t.Context(), podOf("a", "one")); err != nil || second.did() != "+one" && first.did() != "+one" {
		t.Errorf("with two: %v", err)
	}
	first.did()
	m.Unregister(two)
	if err := m.Prepare(t.Context(), podOf("a", "two")); err != nil || first.did() != "+two" || second.did() != "" {
		t.Errorf("with only the earlier process: %v", err)
	}
	m.Unregister(one)
	if _, err := m.driver("driver"); err == nil || err.Error() != "DRA driver driver is not registered" {
		t.Errorf("without a process: %v", err)
	}
}

// TestSlicesOfUnreachableDrivers checks that a starting kubelet deletes all ResourceSlices of the
// node, and that it later deletes those of a driver that could not be reached for 30 s. Failed
// deletions are retried. A driver that can be reached again in time keeps its slices.
func TestSlicesOfUnreachableDrivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := manager(t, filepath.Join(t.TempDir(), "state"))
		begun := time.Now()
		wiped, fails := "", 0
		m.cfg.Wipe = func(_ context.Context, driver string) error {
			if fails > 0 {
				fails--
				return errors.New("refused")
			}
			wiped += fmt.Sprintf("%q after %v;", driver, time.Since(begun))
			return nil
		}
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			if wiped != want {
				t.Errorf("removed %s, want %s", wiped, want)
			}
			wiped = ""
		}
		set := func(name string, up bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.drivers[name] = []*driver{{name: name, up: up, end: func() {}}}
			m.usable(name)
		}
		ctx, cancel := context.WithCancel(t.Context())
		fails = 2
		go func() { _ = m.Run(ctx) }()
		<-time.NewTimer(10 * time.Second).C
		expect(`"" after 3s;`)
		set("a", true)
		set("b", true)
		set("a", false)
		<-time.NewTimer(20 * time.Second).C
		set("b", false)
		set("a", true)
		set("a", false)
		<-time.NewTimer(31 * time.Second).C
		expect(`"a" after 1m0s;"b" after 1m0s;`)
		<-time.NewTimer(time.Hour).C
		expect("")
		set("b", true)
		set("b", false)
		set("b", true)
		<-time.NewTimer(time.Hour).C
		expect("")
		cancel()
		synctest.Wait()
	})
}

// sick is a driver that reports the health of its devices. The test writes lists to a channel, and
// the driver sends each of them to the kubelet.
type sick struct {
	healthapi.UnimplementedDRAResourceHealthServer
	say chan []*healthapi.DeviceHealth
}

func (s *sick) NodeWatchResources(_ *healthapi.NodeWatchResourcesRequest,
	stream grpc.ServerStreamingServer[healthapi.NodeWatchResourcesResponse]) error {
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case list := <-s.say:
			if err := stream.Send(&healthapi.NodeWatchResourcesResponse{Devices: list}); err != nil {
				return err
			}
		}
	}
}

// TestHealthVersions checks which service a driver's health is read from: the newest version of
// those that the driver has registered, and none if it has registered none.
func TestHealthVersions(t *testing.T) {
	stable, alpha := healthapi.DRAResourceHealthService, v1alpha1.DRAResourceHealthService
	for name, c := range map[string]struct {
		registered []string
		want       string
	}{
		"stable": {[]string{api.DRAPluginService, stable}, stable},
		"alpha":  {[]string{alpha, api.DRAPluginService}, alpha},
		"both":   {[]string{api.DRAPluginService, alpha, stable}, stable},
		"none":   {[]string{api.DRAPluginService}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			called := make(chan string, 1)
			endpoint, _ := serveWith(t, func(s *grpc.Server) {
				healthapi.RegisterDRAResourceHealthServer(s, caller{service: stable, called: called})
				v1alpha1.RegisterDRAResourceHealthServer(s,
					healthapi.V1ServerWrapper{Server: caller{service: alpha, called: called}})
			})
			m := manager(t, filepath.Join(t.TempDir(), "state"))
			p := plugins.Plugin{Name: "driver", Endpoint: endpoint, Versions: c.registered}
			if err := m.Register(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if healthClient(m.drivers["driver"][0].conn, c.registered) != nil {
					t.Error("health is read although the driver does not report it")
				}
				return
			}
			if got := <-called; got != c.want {
				t.Errorf("health is read from %q, want %q", got, c.want)
			}
		})
	}
}

// caller reports which health service was called. It reports no health.
type caller struct {
	healthapi.UnimplementedDRAResourceHealthServer
	service string
	called  chan string
}

func (c caller) NodeWatchResources(r *healthapi.NodeWatchResourcesRequest,
	stream grpc.ServerStreamingServer[healthapi.NodeWatchResourcesResponse]) error {
	c.called <- c.service
	return c.UnimplementedDRAResourceHealthServer.NodeWatchResources(r, stream)
}

// TestHealth checks that the health of a device that a driver reports is returned for the
// containers that have the device, and that Changed is called for their pods.
func TestHealth(t *testing.T) {
	d, s := &fakeDriver{}, &sick{say: make(chan []*healthapi.DeviceHealth)}
	endpoint, stop := serveWith(t, func(server *grpc.Server) {
		api.RegisterDRAPluginServer(server, d)
		healthapi.RegisterDRAResourceHealthServer(server, s)
	})
	m := manager(t, filepath.Join(t.TempDir(), "state"), claimOf("one", "a"))
	defer m.closeAll()
	told := make(chan types.UID, 10)
	m.cfg.Changed = func(uid types.UID) { told <- uid }
	if err := m.Register(t.Context(),
		plugins.Plugin{Name: "driver", Endpoint: endpoint,
			Versions: []string{api.DRAPluginService, healthapi.DRAResourceHealthService}}); err != nil {
		t.Fatal(err)
	}
	pod := podOf("a", "one")
	if got := m.Health(pod, &pod.Spec.Containers[0]); got != nil {
		t.Errorf("before it is prepared: %v", got)
	}
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	show := func(i int) string {
		out := ""
		for _, r := range m.Health(pod, &pod.Spec.Containers[i]) {
			out += string(r.Name) + ":"
			for _, h := range r.Resources {
				out += fmt.Sprintf(" %s=%s", h.ResourceID, h.Health)
				if h.Message != nil {
					out += "(" + shorter(*h.Message) + ")"
				}
			}
		}
		return out
	}
	if got := show(0); got != "claim:c: vendor/class=1=Unknown vendor/class=2=Unknown vendor/class=all=Unknown" {
		t.Errorf("health before the first report: %s", got)
	}
	of := func(name string, h healthapi.HealthStatus, message string) *healthapi.DeviceHealth {
		return &healthapi.DeviceHealth{Device: &healthapi.DeviceIdentifier{PoolName: "pool", DeviceName: name},
			Health: h, Message: message, HealthCheckTimeoutSeconds: 3600}
	}
	s.say <- []*healthapi.DeviceHealth{of("d1", healthapi.HealthStatus_HEALTHY, ""),
		of("d2", healthapi.HealthStatus_UNHEALTHY, strings.Repeat("x", 2000)),
		of("other", healthapi.HealthStatus_UNHEALTHY, "")}
	if uid := <-told; uid != "a" {
		t.Errorf("unexpected change of %s", uid)
	}
	if got := show(0); got != "claim:c: vendor/class=1=Healthy vendor/class=2=Unhealthy(1024 x...) "+
		"vendor/class=all=Unknown" {
		t.Errorf("the first container: %s", got)
	}
	if got := show(1); got != "claim:c/two: vendor/class=2=Unhealthy(1024 x...) vendor/class=all=Unknown" {
		t.Errorf("the second: %s", got)
	}
	if got := show(2); got != "" {
		t.Errorf("one without: %s", got)
	}
	// Nothing changes for the pod, because no pod has this device.
	s.say <- []*healthapi.DeviceHealth{of("other", healthapi.HealthStatus_HEALTHY, "")}
	stop()
	<-told
	if got := show(1); got != "claim:c/two: vendor/class=2=Unknown vendor/class=all=Unknown" || len(told) != 0 {
		t.Errorf("after the driver ended: %s, %d more changes", got, len(told))
	}
}

// shorter abbreviates a message for the test's output: its length, its first character and its end.
func shorter(message string) string {
	return fmt.Sprintf("%d %s%s", len(message), message[:1], message[len(message)-3:])
}

// TestOutdatedHealth checks that the health of a device is unknown when the time for which the
// report is valid has passed, and that Changed is called then. A report without a device does not
// change the device's health, even if the report is empty.
func TestOutdatedHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := manager(t, filepath.Join(t.TempDir(), "state"))
		d := &driver{end: func() {}, name: "driver"}
		m.drivers["driver"] = []*driver{d}
		m.claims["uid"] = &claim{Pods: map[types.UID]bool{"a": true},
			Devices: map[string][]*device{"driver": {{Pool: "p", Name: "short"}, {Pool: "p", Name: "usual"}}}}
		changes := 0
		m.cfg.Changed = func(types.UID) { changes++ }
		of := func(name string, seconds int64) *healthapi.DeviceHealth {
			return &healthapi.DeviceHealth{Device: &healthapi.DeviceIdentifier{PoolName: "p", DeviceName: name},
				Health: healthapi.HealthStatus_HEALTHY, HealthCheckTimeoutSeconds: seconds}
		}
		is := func(name string) v1.ResourceHealthStatus {
			return m.healthOf(Device{Driver: "driver", Pool: "p", Name: name}).Health
		}
		const healthy, unknown = v1.ResourceHealthStatusHealthy, v1.ResourceHealthStatusUnknown
		for _, step := range []struct {
			wait         time.Duration
			report       []*healthapi.DeviceHealth
			reported     bool
			short, usual v1.ResourceHealthStatus
			changes      int // since the start
		}{
			{0, []*healthapi.DeviceHealth{of("short", 10)}, true, healthy, unknown, 1},
			{0, []*healthapi.DeviceHealth{of("usual", -1)}, true, healthy, healthy, 2},
			{5 * time.Second, nil, true, healthy, healthy, 2},
			{4 * time.Second, []*healthapi.DeviceHealth{}, true, healthy, healthy, 2},
			{time.Second, nil, false, unknown, healthy, 3},
			{20 * time.Second, nil, false, unknown, unknown, 4},
			{0, []*healthapi.DeviceHealth{of("usual", 0)}, true, unknown, healthy, 5},
			{29 * time.Second, []*healthapi.DeviceHealth{of("short", 10)}, true, healthy, healthy, 6},
			{time.Second, nil, false, healthy, unknown, 7},
		} {
			<-time.NewTimer(step.wait).C
			synctest.Wait()
			if step.reported {
				m.recordHealth(d, step.report)
			}
			if short, usual := is("short"), is("usual"); short != step.short || usual != step.usual ||
				changes != step.changes {
				t.Errorf("after %v more: %s, %s, %d changes; want %+v", step.wait, short, usual, changes, step)
			}
		}
		if m.clearHealth(d); is("short") != unknown || changes != 8 {
			t.Errorf("after the stream ended: %s, %d changes", is("short"), changes)
		}
		<-time.NewTimer(time.Hour).C
		if synctest.Wait(); changes != 8 {
			t.Errorf("%d changes without a stream", changes)
		}
	})
}
