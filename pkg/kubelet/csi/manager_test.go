// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/metrics/metricstest"
	"keelson.dev/keelson/pkg/kubelet/plugins"
	testdriver "keelson.dev/keelson/test/csi/driver"
	"keelson.dev/keelson/test/unshare"
)

func TestMain(m *testing.M) { unshare.Run(m, unshare.Mount) }

// errKilled is the error of the call during which the test kills the kubelet.
var errKilled = status.Error(codes.Unavailable, "killed")

// bench is a node with a CSI driver whose calls can be interrupted.
type bench struct {
	t      *testing.T
	client kubernetes.Interface
	root   string
	driver *testdriver.Driver
	socket string

	mu    sync.Mutex
	calls []string
	// The field cut is the name of the call that is interrupted. If the field after is true, the
	// driver has executed the call before it is interrupted; otherwise it has not.
	cut   string
	after bool
	// most is how many volumes the node can have according to the driver.
	most int64
	// refuse holds, by name of the call, the code of the error that the driver returns.
	refuse map[string]codes.Code
	// mountFlags holds the mount flags of the last call with each name.
	mountFlags map[string][]string
	// loose means that the driver's volumes need not be attached to nodes.
	loose atomic.Bool
	// metrics measures the calls of the kubelets. If it is nil, they are not measured.
	metrics *metrics.Storage
}

func newBench(t *testing.T, client kubernetes.Interface) *bench {
	t.Helper()
	unshare.Need(t)
	sockets, err := os.MkdirTemp("", "k") // short, because the path of a socket has a maximum length
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	b := &bench{t: t, client: client, root: t.TempDir(), socket: filepath.Join(sockets, "s")}
	b.driver = &testdriver.Driver{Name: "d", Node: "n", Root: t.TempDir()}
	l, err := net.Listen("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(b.intercept))
	b.driver.Serve(s)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return b
}

func (b *bench) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, do grpc.UnaryHandler) (any, error) {
	name := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
	b.mu.Lock()
	b.calls = append(b.calls, name)
	b.noteFlags(name, req)
	cut, after, most, refuse := b.cut == name, b.after, b.most, b.refuse[name]
	b.mu.Unlock()
	if refuse != codes.OK {
		return nil, status.Error(refuse, "no")
	}
	if cut && !after {
		return nil, errKilled
	}
	got, err := do(ctx, req)
	if info, ok := got.(*csi.NodeGetInfoResponse); ok {
		info.MaxVolumesPerNode = most
	}
	if cut {
		return nil, errKilled
	}
	return got, err
}

// kubelet returns the Manager of a kubelet that has just started. The driver has no update period.
func (b *bench) kubelet() *Manager {
	b.t.Helper()
	return b.kubeletOf(func(string) time.Duration { return 0 })
}

// kubeletOf returns the Manager of a kubelet that has just started, with the given update period of
// drivers.
func (b *bench) kubeletOf(period func(string) time.Duration) *Manager {
	b.t.Helper()
	m, err := New(Config{
		Metrics: b.metrics,
		RootDir: b.root, NodeName: "n", Client: b.client, Changed: func() {}, UpdatePeriod: period,
		Attaches: func(string) bool { return !b.loose.Load() }, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := m.Register(b.t.Context(),
		plugins.Plugin{Name: "d", Endpoint: b.socket, Versions: []string{"1.0.0"}}); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { m.Unregister(plugins.Plugin{Name: "d", Endpoint: b.socket}) })
	return m
}

// volume creates a volume in the driver and returns it.
func (b *bench) volume(name string, mode v1.PersistentVolumeMode) Volume {
	b.t.Helper()
	c := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if mode == v1.PersistentVolumeBlock {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	}
	_, err := b.driver.CreateVolume(b.t.Context(),
		&csi.CreateVolumeRequest{Name: name, VolumeCapabilities: []*csi.VolumeCapability{c},
			CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20}})
	if err != nil {
		b.t.Fatal(err)
	}
	return Volume{PV: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, VolumeMode: &mode,
		Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d",
			VolumeHandle: name}},
	}}}
}

// leftovers returns the mounts and files that still exist below the kubelet's directory.
func (b *bench) leftovers() []string {
	b.t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(b.root))
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, m := range mounts {
		out = append(out, "mount "+m.Mountpoint)
	}
	err = filepath.WalkDir(b.root, func(path string, e fs.DirEntry, err error) error {
		base := filepath.Base(filepath.Dir(path))
		if err == nil && (!e.IsDir() || base == pluginDir || base == "d" || base == "volumeDevices" &&
			e.Name() != "staging" && e.Name() != "publish" && e.Name() != pluginDir) {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func cluster(t *testing.T, attach bool) kubernetes.Interface {
	t.Helper()
	s := testserver.Start(t, testserver.Options{})
	if _, err := s.Client.CoreV1().Nodes().Create(t.Context(),
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: storagev1.CSIDriverSpec{
		AttachRequired: &attach, PodInfoOnMount: ptr.To(true),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent,
			storagev1.VolumeLifecycleEphemeral},
	}}
	if _, err := s.Client.StorageV1().CSIDrivers().Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s.Client
}

func pod(uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: uid, UID: types.UID(uid)}}
}

// TestKilled kills the kubelet during each kind of call, before or after the driver executes the
// call. It checks that the next kubelet process removes everything and loses no data.
func TestKilled(t *testing.T) {
	client := cluster(t, false)
	for _, mode := range []v1.PersistentVolumeMode{v1.PersistentVolumeFilesystem, v1.PersistentVolumeBlock} {
		for _, call := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/after=%v", mode, call, after), func(t *testing.T) { killed(t, client, mode, call, after) })
			}
		}
	}
}

func killed(t *testing.T, client kubernetes.Interface, mode v1.PersistentVolumeMode, call string, after bool) {
	b := newBench(t, client)
	if _, err := os.Stat("/dev/loop-control"); err != nil && mode == v1.PersistentVolumeBlock {
		t.Skip("needs loop devices")
	}
	v, p := b.volume("v", mode), pod("u")
	b.cut, b.after = call, after
	v.PV.Spec.CSI.VolumeAttributes = map[string]string{"x": "y"}
	first := b.kubelet()
	_, err := first.Mount(t.Context(), p, v)
	if err == nil {
		if mode == v1.PersistentVolumeFilesystem {
			if err := os.WriteFile(filepath.Join(b.root, "pods/u/volumes", pluginDir, "v", mountName, "data"),
				[]byte("kept"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err = errors.Join(first.Teardown(t.Context(), p.UID), first.sweep(t.Context()))
	}
	if err == nil {
		t.Fatal("no call was interrupted")
	}
	b.mu.Lock()
	b.cut = ""
	b.mu.Unlock()
	next := b.kubelet()
	if call != "NodeUnstageVolume" && len(next.InUse()) != 1 {
		t.Errorf("in use: %v", next.InUse())
	}
	if err := errors.Join(next.Teardown(t.Context(), p.UID), next.sweep(t.Context())); err != nil {
		t.Fatal(err)
	}
	if left := b.leftovers(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if used := next.InUse(); len(used) > 0 {
		t.Errorf("still in use: %v", used)
	}
	if strings.Contains(call, "Un") && mode == v1.PersistentVolumeFilesystem {
		if got, err := os.ReadFile(filepath.Join(b.driver.Root, "volumes/v/files/data")); string(got) != "kept" {
			t.Errorf("the data: %q, %v", got, err)
		}
	}
}

func TestCallsAreCounted(t *testing.T) {
	b, r := newBench(t, cluster(t, false)), prometheus.NewRegistry()
	b.metrics = metrics.NewStorage(r)
	b.refuse = map[string]codes.Code{"NodePublishVolume": codes.Internal}
	m, v := b.kubelet(), b.volume("v", v1.PersistentVolumeFilesystem)
	if _, err := m.Mount(t.Context(), pod("a"), v); err == nil {
		t.Fatal("mounted by a driver that does not")
	}
	b.mu.Lock()
	b.refuse = nil
	b.mu.Unlock()
	if err := m.Teardown(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	call := func(method, code string) string {
		return `csi_operations_seconds_count{driver_name="d",grpc_status_code="` + code +
			`",method_name="/csi.v1.Node/` + method + `",migrated="false"}`
	}
	metricstest.Expect(t, metricstest.Scrape(t, r), map[string]float64{
		call("NodeStageVolume", "OK"): 1, call("NodePublishVolume", "Internal"): 1,
		call("NodePublishVolume", "OK"): -1, call("NodeUnpublishVolume", "OK"): 1,
		`storage_operation_duration_seconds_count{migrated="false",operation_name="unmount_device",` +
			`status="success",volume_plugin="kubernetes.io/csi:d"}`: 1,
	})
}

// TestOnePod checks that a ReadWriteOncePod volume is mounted for a second pod only after it was
// unmounted for the first pod, even if the kubelet restarts in between.
func TestOnePod(t *testing.T) {
	b := newBench(t, cluster(t, false))
	v := b.volume("v", v1.PersistentVolumeFilesystem)
	v.PV.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	if _, err := b.kubelet().Mount(t.Context(), pod("a"), v); err != nil {
		t.Fatal(err)
	}
	m := b.kubelet()
	if _, err := m.Mount(t.Context(), pod("b"), v); !errors.Is(err, errInUse) {
		t.Errorf("the second pod: %v", err)
	}
	if _, err := m.Mount(t.Context(), pod("a"), v); err != nil {
		t.Errorf("the first pod again: %v", err)
	}
	if err := m.Teardown(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Mount(t.Context(), pod("b"), v); err != nil {
		t.Errorf("the second pod, alone: %v", err)
	}
	if err := m.Teardown(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if left := b.leftovers(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestTwoPods checks that a volume that two pods use is staged only once, and is unstaged after it
// was unmounted for both pods.
func TestTwoPods(t *testing.T) {
	b := newBench(t, cluster(t, false))
	v, m := b.volume("v", v1.PersistentVolumeFilesystem), b.kubelet()
	for _, p := range []string{"a", "b"} {
		if _, err := m.Mount(t.Context(), pod(p), v); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Teardown(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(b.calls, "NodeUnstageVolume") {
		t.Error("unstaged while a pod has it")
	}
	if err := m.Teardown(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if left := b.leftovers(); len(left) > 0 || !slices.Contains(b.calls, "NodeUnstageVolume") {
		t.Errorf("left: %q; calls: %q", left, b.calls)
	}
}

// TestInline checks that an inline volume is removed together with its pod, and is never listed as
// in use.
func TestInline(t *testing.T) {
	b := newBench(t, cluster(t, false))
	m, p := b.kubelet(), pod("u")
	got, err := m.Mount(t.Context(), p, Volume{Name: "own", Inline: &v1.CSIVolumeSource{Driver: "d"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(got.Path, "f"), nil, 0o600); err != nil {
		t.Error(err)
	}
	if used := m.InUse(); len(used) > 0 {
		t.Errorf("in use: %v", used)
	}
	if err := m.Teardown(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(b.driver.Root, "volumes")); len(left) > 0 || len(b.leftovers()) > 0 {
		t.Errorf("left: %v, %q, %v", left, b.leftovers(), err)
	}
}

// TestNeverDeletesThroughAMount checks that nothing is deleted if a volume is still mounted
// although the driver claims to have unpublished it.
func TestNeverDeletesThroughAMount(t *testing.T) {
	b := newBench(t, cluster(t, false))
	v, p := b.volume("v", v1.PersistentVolumeFilesystem), pod("u")
	m := b.kubelet()
	got, err := m.Mount(t.Context(), p, v)
	if err != nil {
		t.Fatal(err)
	}
	if err := removeTarget(got.Path); err == nil || !strings.Contains(err.Error(), "still mounted") {
		t.Errorf("removed a mount: %v", err)
	}
	if err := m.Teardown(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
}

// TestAttached checks that a volume is used only when the API lists it as in use by the node and as
// attached to the node.
func TestAttached(t *testing.T) {
	client := cluster(t, true)
	b := newBench(t, client)
	m, i := b.kubelet(), id{"d", "v"}
	nodes, attachments := client.CoreV1().Nodes(), client.StorageV1().VolumeAttachments()
	say := func(patch string) {
		t.Helper()
		if _, err := nodes.Patch(t.Context(), "n", types.MergePatchType, []byte(patch), metav1.PatchOptions{},
			"status"); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(want string) {
		t.Helper()
		if _, err := m.attached(t.Context(), i); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	refused("not yet reported to be in use")
	say(`{"status":{"volumesInUse":["` + i.String() + `"]}}`)
	refused("there is no VolumeAttachment yet")
	a, err := attachments.Create(t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: AttachmentName("v", "d", "n")},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: "n",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	refused("is not attached")
	a.Status.Attached, a.Status.AttachmentMetadata = true, map[string]string{"node": "n"}
	if _, err := attachments.UpdateStatus(t.Context(), a, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	refused("is not attached") // the Node does not list it as attached, so a controller may be detaching it
	say(`{"status":{"volumesAttached":[{"name":"` + i.String() + `","devicePath":""}]}}`)
	if got, err := m.attached(t.Context(), i); err != nil || got["node"] != "n" {
		t.Errorf("%v, %v", got, err)
	}
}

// TestPublished checks that drivers are added to the CSINode when they register, and removed when
// they unregister.
func TestPublished(t *testing.T) {
	client := cluster(t, false)
	b := newBench(t, client)
	m := b.kubelet()
	drivers := func() int {
		t.Helper()
		n, err := client.StorageV1().CSINodes().Get(t.Context(), "n", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(n.Spec.Drivers)
	}
	if n := drivers(); n != 1 {
		t.Errorf("%d drivers", n)
	}
	m.Unregister(plugins.Plugin{Name: "d", Endpoint: b.socket})
	if err := m.withdraw(t.Context()); err != nil {
		t.Fatal(err)
	}
	node, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil || node.Annotations[nodeIDs] != "" || drivers() != 0 {
		t.Errorf("%d drivers, annotations %v, %v", drivers(), node.Annotations, err)
	}
	if err := m.Register(t.Context(),
		plugins.Plugin{Name: "d", Endpoint: b.socket, Versions: []string{"0.3.0"}}); err == nil {
		t.Error("an old version was taken")
	}
}

// TestCSINodeCreatedTwice checks that a driver is published even if Run, which creates the CSINode when the
// kubelet starts, does so just before the registration wants to create it.
func TestCSINodeCreatedTwice(t *testing.T) {
	client := cluster(t, false)
	m, nodes := newBench(t, client).kubelet(), client.StorageV1().CSINodes()
	if err := nodes.Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	created := false
	err := m.csiNode(t.Context(), func(n *storagev1.CSINode) {
		if !created {
			if _, err := nodes.Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			created = true
		}
		n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "d", NodeID: "n"}}
	})
	if err != nil {
		t.Error(err)
	}
	if n, err := nodes.Get(t.Context(), "n", metav1.GetOptions{}); err != nil || len(n.Spec.Drivers) != 1 {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestReregisteredDriverIsPublished checks that a driver that unregisters and immediately registers
// again, for example because its socket was replaced, is listed in the CSINode afterwards. This
// must hold whenever its removal from the CSINode is processed.
func TestReregisteredDriverIsPublished(t *testing.T) {
	client := cluster(t, false)
	b := newBench(t, client)
	m := b.kubelet()
	d := plugins.Plugin{Name: "d", Endpoint: b.socket, Versions: []string{"1.0.0"}}
	for i := range 200 {
		m.Unregister(d)
		withdrawn := make(chan error, 1)
		// The removal is processed at a random time, possibly during the registration that follows.
		time.AfterFunc(rand.N(8*time.Millisecond), func() { withdrawn <- m.withdraw(t.Context()) })
		if err := m.Register(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if err := <-withdrawn; err != nil {
			t.Fatal(err)
		}
		n, err := client.StorageV1().CSINodes().Get(t.Context(), "n", metav1.GetOptions{})
		if err != nil || len(n.Spec.Drivers) != 1 {
			t.Fatalf("time %d: %v, %v", i, n, err)
		}
	}
}
