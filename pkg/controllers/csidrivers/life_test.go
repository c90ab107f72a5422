// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/protection"
	"keelson.dev/keelson/pkg/controllers/volumebinder"
	"keelson.dev/keelson/test/csi/driver"
)

const name = "test.csi.keelson.dev"

// errKilled is the error of all steps of a process that was killed.
var errKilled = errors.New("killed")

// process simulates a process of the controller. Its steps are its write requests to the API server
// and its calls of the driver that may change something. The test kills it at one step.
type process struct {
	driver *grpc.ClientConn
	// The field at is the number of the step at which the process is killed, and the field when is
	// the name of that step; only one of them is set. If the field after is true, the process is
	// killed after the step was done, otherwise before it. killed is closed when the process is
	// killed.
	at     int
	when   string
	after  bool
	killed chan struct{}
	// If volumes is set, the process does not see changes of volumes before volumes is closed. synced
	// is true when it has seen the volumes that existed at its start.
	volumes chan struct{}
	synced  atomic.Bool

	mu    sync.Mutex
	steps int
	dead  bool
	last  string
}

// step calls do, unless the process was already killed or is killed before this step. It counts the
// step if counts is true.
func (p *process) step(what string, counts bool, do func() error) error {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return errKilled
	}
	hit := false
	if counts {
		p.steps++
		hit = p.steps == p.at || p.when == what
	}
	if hit {
		p.dead, p.last = true, what
		defer close(p.killed)
	}
	p.mu.Unlock()
	if hit && !p.after {
		return errKilled
	}
	if err := do(); err != nil || !hit {
		return err
	}
	return errKilled
}

// RoundTrip sends a request with next, as a step of the process.
func (p *process) RoundTrip(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	var resp *http.Response
	err := p.step(r.Method+" "+r.URL.Path, r.Method != http.MethodGet, func() error {
		var err error
		resp, err = next.RoundTrip(r)
		return err
	})
	if err != nil && resp != nil {
		_ = resp.Body.Close()
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (p *process) call(ctx context.Context, node, driver, method string, in, out protoadapt.MessageV1) error {
	if node != "n" || driver != name {
		return status.Errorf(codes.Unavailable, "no driver %s on %s", driver, node)
	}
	err := p.step(method, method != controllerService+"ControllerGetCapabilities", func() error {
		return p.driver.Invoke(ctx, "/"+method, in, out)
	})
	if errors.Is(err, errKilled) {
		return status.Error(codes.Unavailable, err.Error())
	}
	return err
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// following returns the configuration of the client with which the process's informers list and
// watch. If p.volumes is set, this client holds back the events of volumes.
func (p *process) following(config *rest.Config) *rest.Config {
	if p.volumes == nil {
		return config
	}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && r.URL.Path == "/api/v1/persistentvolumes" && r.URL.Query().Get("watch") != "" {
				resp.Body = heldBody{resp.Body, p}
			}
			return resp, err
		})
	})
	return config
}

// heldBody is the body of a watch response. Once the process has filled its caches, Read holds back
// what it has read until the test closes the channel process.volumes.
type heldBody struct {
	io.ReadCloser
	process *process
}

func (b heldBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if n > 0 && b.process.synced.Load() {
		<-b.process.volumes
	}
	return n, err
}

// start starts the process. The returned function stop ends it and waits until it has ended.
func (p *process) start(t *testing.T, s *testserver.Server) (stop func()) {
	config := rest.CopyConfig(s.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) { return p.RoundTrip(next, r) })
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		panic(err) // cannot happen: the configuration is valid
	}
	reads, err := kubernetes.NewForConfig(p.following(s.Config))
	if err != nil {
		panic(err) // cannot happen: the configuration is valid
	}
	d := controller.Deps{
		Client: client, Informers: controller.NewInformers(reads, 0), Events: &record.FakeRecorder{}, Clock: clock.Real(),
		Log:     slog.New(slog.DiscardHandler),
		Options: controller.Options{Workers: 2, Periods: controller.DefaultPeriods()},
	}
	made, err := New(d)
	if err != nil {
		panic(err) // cannot happen: the informers are not started yet
	}
	c := made.(*Controller)
	c.drivers = p
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	d.Informers.Start(ctx.Done())
	d.Informers.WaitForCacheSync(ctx.Done())
	p.synced.Store(true)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("controller: %v", err)
		}
		d.Informers.Shutdown()
	}
}

// world is an API server with one node and a CSI driver on that node.
type world struct {
	*testserver.Server
	driver *driver.Driver
	conn   *grpc.ClientConn
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: testserver.Start(t, testserver.Options{}),
		driver: &driver.Driver{Name: name, Node: "n", Root: t.TempDir()}}
	sockets, err := os.MkdirTemp("", "k") // the path must be short, because paths of sockets have a maximum length
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	l, err := net.Listen("unix", filepath.Join(sockets, "s"))
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	w.driver.Serve(g)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	if w.conn, err = grpc.NewClient("unix://"+l.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.conn.Close() })

	ctx := t.Context()
	// Call this method once before the test, as the kubelet does.
	if _, err := w.driver.NodeGetInfo(ctx, nil); err != nil {
		t.Fatal(err)
	}
	node, err := w.Client.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	if _, err := w.Client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	storage := w.Client.StorageV1()
	_, errNode := storage.CSINodes().Create(ctx, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: name, NodeID: "n"}}},
	}, metav1.CreateOptions{})
	_, errDriver := storage.CSIDrivers().Create(ctx,
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{Label: Kubelet}}}, metav1.CreateOptions{})
	_, errClass := storage.StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: name, AllowVolumeExpansion: ptr.To(true),
		Parameters: map[string]string{fsType: "ext4"},
	}, metav1.CreateOptions{})
	if err := errors.Join(errNode, errDriver, errClass); err != nil {
		t.Fatal(err)
	}
	controllertest.Run(t, w.Server, controller.Options{}, volumebinder.New, protection.NewClaims, protection.NewVolumes)
	return w
}

// alive keeps a controller running until the test ends. It starts the process first and, when that
// is killed, another one.
func (w *world) alive(t *testing.T, first *process) {
	t.Helper()
	stop := first.start(t, w.Server)
	finish, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-first.killed:
			stop()
			stop = (&process{driver: w.conn}).start(t, w.Server)
			<-finish
		case <-finish:
		}
		stop()
	}()
	t.Cleanup(func() {
		close(finish)
		<-ended
	})
}

func claim(name string) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("fast"), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
}

// live creates a claim and checks that a volume is created for it, attached, expanded, detached and
// deleted.
func (w *world) live(t *testing.T, id string) {
	t.Helper()
	claims, attachments := w.Client.CoreV1().PersistentVolumeClaims("default"), w.Client.StorageV1().VolumeAttachments()
	if _, err := claims.Create(t.Context(), claim(id), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var volume string
	controllertest.Eventually(t, "the claim is bound", func(ctx context.Context) (any, bool) {
		got, err := claims.Get(ctx, id, metav1.GetOptions{})
		if err == nil {
			volume = got.Spec.VolumeName
		}
		return got, err == nil && got.Status.Phase == v1.ClaimBound
	})
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: name, NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
	}}
	if _, err := attachments.Create(t.Context(), a, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "it is attached", func(ctx context.Context) (any, bool) {
		got, err := attachments.Get(ctx, id, metav1.GetOptions{})
		return got, err == nil && got.Status.Attached && got.Status.AttachmentMetadata["node"] == "n"
	})
	if _, err := claims.Patch(t.Context(), id, "application/merge-patch+json",
		[]byte(`{"spec":{"resources":{"requests":{"storage":"3Mi"}}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "it is the node's turn to grow it", func(ctx context.Context) (any, bool) {
		got, err := claims.Get(ctx, id, metav1.GetOptions{})
		v, errVolume := w.Client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
		if err != nil || errVolume != nil {
			return errors.Join(err, errVolume), false
		}
		return got,
			got.Status.AllocatedResourceStatuses[v1.ResourceStorage] == v1.PersistentVolumeClaimNodeResizePending &&
				v.Spec.Capacity.Storage().String() == "3Mi"
	})
	if err := attachments.Delete(t.Context(), id, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := claims.Delete(t.Context(), id, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "nothing is left", func(ctx context.Context) (any, bool) {
		_, errClaim := claims.Get(ctx, id, metav1.GetOptions{})
		v, errVolume := w.Client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
		at, errAttachment := attachments.Get(ctx, id, metav1.GetOptions{})
		return []any{v, at}, apierrors.IsNotFound(errClaim) && apierrors.IsNotFound(errVolume) &&
			apierrors.IsNotFound(errAttachment)
	})
	w.empty(t)
}

// empty checks that the driver has no volumes any more.
func (w *world) empty(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(w.driver.Root, "volumes", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left with the driver: %v, %v", left, err)
	}
}

// TestKilled kills the controller at each of its steps in turn, once before and once after the
// step. The next process must finish the work, and no volume may be created twice or left over.
func TestKilled(t *testing.T) {
	w := newWorld(t)
	for _, after := range []bool{false, true} {
		for at, more := 1, true; more; at++ {
			t.Run(fmt.Sprintf("after %v step %d", after, at), func(t *testing.T) {
				p := &process{driver: w.conn, at: at, after: after, killed: make(chan struct{})}
				w.alive(t, p)
				w.live(t, fmt.Sprintf("c%d-%v", at, after))
				p.mu.Lock()
				defer p.mu.Unlock()
				more = p.dead
				t.Logf("killed at %q", p.last)
			})
			if t.Failed() {
				return
			}
		}
	}
}

// TestAbandoned checks that no volume is left over if a claim is deleted while its volume is being
// created.
func TestAbandoned(t *testing.T) {
	w := newWorld(t)
	// Kill the controller after the driver has created the volume and before the controller creates
	// the PersistentVolume.
	p := &process{driver: w.conn, when: controllerService + "CreateVolume", after: true, killed: make(chan struct{})}
	stop := p.start(t, w.Server)
	claims := w.Client.CoreV1().PersistentVolumeClaims("default")
	if _, err := claims.Create(t.Context(), claim("c"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	<-p.killed
	stop()
	if left, err := filepath.Glob(filepath.Join(w.driver.Root, "volumes", "*")); err != nil || len(left) != 1 {
		t.Fatalf("the driver has %v, %v, not one volume", left, err)
	}
	if err := claims.Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	defer (&process{driver: w.conn}).start(t, w.Server)()
	controllertest.Eventually(t, "the claim is gone", func(ctx context.Context) (any, bool) {
		got, err := claims.Get(ctx, "c", metav1.GetOptions{})
		return got, apierrors.IsNotFound(err)
	})
	w.empty(t)
}
