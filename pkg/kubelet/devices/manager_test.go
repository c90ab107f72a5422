// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson.dev/keelson/pkg/kubelet/numa"
)

const gadget = "example.com/gadget"

// fakePlugin is a device plugin that records the calls to it.
type fakePlugin struct {
	api.UnimplementedDevicePluginServer
	server *grpc.Server
	lists  chan []*api.Device
	prefer []string

	mu      sync.Mutex
	refuses error
	asked   [][]string
	started [][]string
}

func (f *fakePlugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: f.prefer != nil}, nil
}

func (f *fakePlugin) ListAndWatch(_ *api.Empty, s grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		select {
		case <-s.Context().Done():
			return nil
		case list := <-f.lists:
			if err := s.Send(&api.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
		}
	}
}

func (f *fakePlugin) GetPreferredAllocation(context.Context, *api.PreferredAllocationRequest) (
	*api.PreferredAllocationResponse, error) {
	return &api.PreferredAllocationResponse{ContainerResponses: []*api.ContainerPreferredAllocationResponse{
		{DeviceIDs: f.prefer}}}, nil
}

func (f *fakePlugin) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := r.ContainerRequests[0].DevicesIds
	f.asked = append(f.asked, ids)
	return &api.AllocateResponse{
		ContainerResponses: []*api.ContainerAllocateResponse{
			{Envs: map[string]string{"IDS": strings.Join(ids, ",")}}}}, f.refuses
}

func (f *fakePlugin) PreStartContainer(_ context.Context, r *api.PreStartContainerRequest) (
	*api.PreStartContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started = append(f.started, r.DevicesIds)
	return &api.PreStartContainerResponse{}, nil
}

// node is a Manager that is running, with channels that receive the calls of Changed and Affected.
type node struct {
	*Manager
	clock   *clocktesting.FakeClock
	changed chan struct{}
	// affected receives the UIDs of the pods whose devices have changed their health.
	affected chan types.UID
	stop     func()
}

func start(t *testing.T, dir string) *node {
	t.Helper()
	n := &node{clock: clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)),
		changed: make(chan struct{}, 100), affected: make(chan types.UID, 100)}
	m := NewManager(Config{Dir: dir, Clock: n.clock, Log: slog.New(slog.DiscardHandler),
		Changed: func() { n.changed <- struct{}{} }, Affected: func(uid types.UID) { n.affected <- uid }})
	n.Manager = m
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(n.stop)
	for { // wait until Run serves, because it first removes all sockets in the directory
		conn, err := net.Dial("unix", filepath.Join(dir, socketName))
		if err == nil {
			_ = conn.Close()
			return n
		}
		<-time.NewTimer(time.Millisecond).C
	}
}

// plug starts a plugin and registers it for a resource.
func (n *node) plug(t *testing.T, dir string, f *fakePlugin, name string) error {
	t.Helper()
	socket := fmt.Sprintf("p%d.sock", n.clock.Now().UnixNano())
	_ = os.Remove(filepath.Join(dir, socket))
	l, err := net.Listen("unix", filepath.Join(dir, socket))
	if err != nil {
		t.Fatal(err)
	}
	f.lists, f.server = make(chan []*api.Device, 1), grpc.NewServer()
	api.RegisterDevicePluginServer(f.server, f)
	go func() { _ = f.server.Serve(l) }()
	t.Cleanup(f.server.Stop)
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, socketName),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = api.NewRegistrationClient(conn).Register(t.Context(),
		&api.RegisterRequest{Version: api.Version, Endpoint: socket, ResourceName: name}, grpc.WaitForReady(true))
	return err
}

// admit assigns the requested devices to all containers of a pod.
func (n *node) admit(t *testing.T, pod *v1.Pod) error {
	t.Helper()
	align, err := numa.New(numa.Config{Layout: &numa.Layout{}, Providers: []numa.Provider{n.Manager}})
	if err != nil {
		t.Fatal(err)
	}
	return align.Admit(t.Context(), pod)
}

// awaitDevices waits until the Manager reports these numbers of devices.
func (n *node) awaitDevices(t *testing.T, capacity, allocatable int64) {
	t.Helper()
	for {
		all, free, _ := n.Resources()
		c, a := all[gadget], free[gadget]
		if c.Value() == capacity && a.Value() == allocatable {
			return
		}
		select {
		case <-n.changed:
		case <-time.NewTimer(3 * time.Minute).C:
			t.Fatalf("capacity %d, allocatable %d; want %d and %d", c.Value(), a.Value(), capacity, allocatable)
		}
	}
}

func healthy(ids ...string) []*api.Device {
	var out []*api.Device
	for _, id := range ids {
		out = append(out, &api.Device{ID: id, Health: api.Healthy})
	}
	return out
}

func podOf(uid string, counts ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	for i, n := range counts {
		init := strings.HasPrefix(n, "i")
		l := v1.ResourceList{gadget: resource.MustParse(strings.TrimPrefix(n, "i")), v1.ResourceCPU: resource.MustParse("1")}
		c := v1.Container{Name: fmt.Sprint("c", i), Resources: v1.ResourceRequirements{Limits: l, Requests: l}}
		if init {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

func dir(t *testing.T) string {
	t.Helper()
	d, err := os.MkdirTemp("", "k") // short, because the path of a socket has a maximum length
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(d) })
	return d
}

func TestDevices(t *testing.T) {
	at := dir(t)
	n := start(t, at)
	f := &fakePlugin{prefer: []string{"d3"}}
	if err := n.plug(t, at, f, gadget); err != nil {
		t.Fatal(err)
	}
	f.lists <- append(healthy("d1", "d2", "d3"), &api.Device{ID: "d4", Health: api.Unhealthy})
	n.awaitDevices(t, 4, 3)

	// The main container takes over the device of the init container, d3, which the plugin prefers.
	// It also gets another device.
	pod := podOf("u", "i1", "2")
	if err := n.admit(t, pod); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(f.asked); got != "[[d3] [d3 d1]]" {
		t.Errorf("asked for %s", got)
	}
	if err := n.admit(t, pod); err != nil || len(f.asked) != 2 {
		t.Errorf("repeated calls: %v, %v", f.asked, err)
	}
	given, err := n.Container(t.Context(), pod, &pod.Spec.Containers[0])
	if err != nil || len(given) != 1 || given[0].Envs["IDS"] != "d3,d1" || fmt.Sprint(f.started) != "[[d3 d1]]" {
		t.Errorf("given %v, started %v, %v", given, f.started, err)
	}
	err = n.admit(t, podOf("v", "2"))
	if want :=
		"requested number of devices unavailable for example.com/gadget. Requested: 2, Available: 1"; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	// If the plugin returns an error, the pod gets no devices.
	f.mu.Lock()
	f.refuses = errors.New("no")
	f.mu.Unlock()
	if err := n.admit(t, podOf("v", "1")); err == nil || len(n.given) != 1 {
		t.Errorf("%v, %d pods have devices", err, len(n.given))
	}
	n.Free("u")
	f.mu.Lock()
	f.refuses = nil
	f.mu.Unlock()
	if err := n.admit(t, podOf("v", "3")); err != nil {
		t.Errorf("after devices were given back: %v", err)
	}

	// After the plugin has ended, the resource is still reported for a while, but no device can be
	// allocated.
	f.server.Stop()
	n.awaitDevices(t, 4, 0)
	if err := n.admit(t, podOf("w", "1")); err == nil ||
		err.Error() != "no healthy devices present; cannot allocate unhealthy devices example.com/gadget" {
		t.Errorf("without a plugin: %v", err)
	}
	n.clock.Step(graceWithoutPlugin + time.Second)
	if all, _, gone := n.Resources(); len(all) != 0 || !slices.Equal(gone, []v1.ResourceName{gadget}) {
		t.Errorf("resources %v, gone %v", all, gone)
	}
}

// TestRestart checks that containers keep their devices when the kubelet restarts, that these
// devices are not assigned to other pods, and that the resource is reported before its plugin
// registers again.
func TestRestart(t *testing.T) {
	at := dir(t)
	n := start(t, at)
	f := &fakePlugin{}
	if err := n.plug(t, at, f, gadget); err != nil {
		t.Fatal(err)
	}
	f.lists <- healthy("d1", "d2")
	n.awaitDevices(t, 2, 2)
	pod := podOf("u", "1")
	if err := n.admit(t, pod); err != nil {
		t.Fatal(err)
	}
	n.stop()
	f.server.Stop()

	n = start(t, at)
	if all, _, _ := n.Resources(); len(all) != 1 {
		t.Errorf("resources %v", all)
	}
	if given, err := n.Container(t.Context(), pod, &pod.Spec.Containers[0]); err != nil || len(given) != 1 ||
		given[0].Envs["IDS"] != "d1" {
		t.Errorf("given %v, %v", given, err)
	}
	again := &fakePlugin{}
	if err := n.plug(t, at, again, gadget); err != nil {
		t.Fatal(err)
	}
	again.lists <- healthy("d1", "d2")
	n.awaitDevices(t, 2, 2)
	if err := n.admit(t, podOf("v", "1")); err != nil || fmt.Sprint(again.asked) != "[[d2]]" {
		t.Errorf("asked for %v, %v", again.asked, err)
	}
}

func TestRegistrationErrors(t *testing.T) {
	at := dir(t)
	n := start(t, at)
	for _, name := range []string{"gadget", "kubernetes.io/gadget", "requests.example.com/gadget", "example.com/"} {
		if err := n.plug(t, at, &fakePlugin{}, name); err == nil || !strings.Contains(err.Error(), "is invalid") {
			t.Errorf("%s: %v", name, err)
		}
		n.clock.Step(time.Second)
	}
}
