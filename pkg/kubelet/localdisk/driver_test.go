// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package localdisk

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"keelson.dev/apiserver/leaktest"
	"keelson.dev/keelson/pkg/loopdev"
	"keelson.dev/keelson/test/unshare"
)

func TestMain(m *testing.M) { unshare.Run(leaktest.Checked{M: m}, unshare.Mount) }

func newDriver(t *testing.T) *Driver {
	t.Helper()
	d := New(Config{RootDir: t.TempDir(), NodeName: "n1", Log: slog.New(slog.DiscardHandler)})
	if err := os.MkdirAll(d.volumes(), 0o750); err != nil {
		t.Fatal(err)
	}
	return d
}

func capability(block bool) *csi.VolumeCapability {
	c := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}
	}
	return c
}

func request(name string, size int64, block bool) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		VolumeCapabilities: []*csi.VolumeCapability{capability(block)}}
}

// user calls the node service for one volume in the way that the kubelet does.
type user struct {
	t               *testing.T
	d               *Driver
	id              string
	block           bool
	staging, target string
}

func newUser(t *testing.T, d *Driver, id string, block bool) *user {
	t.Helper()
	dir := t.TempDir()
	u := &user{t: t, d: d, id: id, block: block, staging: filepath.Join(dir, "staging"),
		target: filepath.Join(dir, "target")}
	if err := os.Mkdir(u.staging, 0o750); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unmount(u.target)
		_ = unmount(u.staging)
		_ = loopdev.Detach(filepath.Join(d.volumes(), id, diskName))
	})
	return u
}

func (u *user) use() {
	u.t.Helper()
	for range 2 { // twice, because the kubelet may repeat every call
		if _, err := u.d.NodeStageVolume(u.t.Context(),
			&csi.NodeStageVolumeRequest{VolumeId: u.id, StagingTargetPath: u.staging,
				VolumeCapability: capability(u.block)}); err != nil {
			u.t.Fatal(err)
		}
		if _, err := u.d.NodePublishVolume(u.t.Context(),
			&csi.NodePublishVolumeRequest{VolumeId: u.id, StagingTargetPath: u.staging, TargetPath: u.target,
				VolumeCapability: capability(u.block)}); err != nil {
			u.t.Fatal(err)
		}
	}
}

func (u *user) leave() {
	u.t.Helper()
	for range 2 {
		if _, err := u.d.NodeUnpublishVolume(u.t.Context(),
			&csi.NodeUnpublishVolumeRequest{VolumeId: u.id, TargetPath: u.target}); err != nil {
			u.t.Fatal(err)
		}
		if _, err := u.d.NodeUnstageVolume(u.t.Context(),
			&csi.NodeUnstageVolumeRequest{VolumeId: u.id, StagingTargetPath: u.staging}); err != nil {
			u.t.Fatal(err)
		}
	}
	if dev, err := loopdev.DeviceOf(filepath.Join(u.d.volumes(), u.id, diskName)); dev != "" || err != nil {
		u.t.Errorf("loop device %q remains, %v", dev, err)
	}
}

func (u *user) grow(size int64) {
	u.t.Helper()
	if _, err := u.d.ControllerExpandVolume(u.t.Context(),
		&csi.ControllerExpandVolumeRequest{VolumeId: u.id,
			CapacityRange: &csi.CapacityRange{RequiredBytes: size}}); err != nil {
		u.t.Fatal(err)
	}
	expand := func() error {
		_, err := u.d.NodeExpandVolume(u.t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: u.id, VolumePath: u.target})
		return err
	}
	err := expand()
	if status.Code(err) == codes.FailedPrecondition && !u.block {
		u.leave() // without CAP_SYS_RESOURCE the file system grows only while it is unmounted
		u.use()
		err = expand()
	}
	if err != nil {
		u.t.Fatal(err)
	}
}

func create(t *testing.T, d *Driver, r *csi.CreateVolumeRequest) {
	t.Helper()
	for range 2 {
		got, err := d.CreateVolume(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if v := got.GetVolume(); v.GetAccessibleTopology()[0].GetSegments()[TopologyKey] != "n1" ||
			v.GetCapacityBytes() != r.GetCapacityRange().GetRequiredBytes() {
			t.Errorf("got %v", v)
		}
	}
}

func remove(t *testing.T, d *Driver, id string) error {
	t.Helper()
	_, err := d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
	return err
}

// TestFileSystem checks that the size of a file system volume is limited, that it grows while it is
// in use, that it keeps its files, and that deleting it removes everything.
func TestFileSystem(t *testing.T) {
	unshare.Need(t)
	d := newDriver(t)
	create(t, d, request("a", 32<<20, false))
	u := newUser(t, d, "a", false)
	u.use()
	if entries, err := os.ReadDir(u.target); err != nil || len(entries) > 0 {
		t.Errorf("a new volume has %v, %v", entries, err)
	}
	fill := func(name string) error {
		return os.WriteFile(filepath.Join(u.target, name), make([]byte, 40<<20), 0o600)
	}
	if err := fill("large"); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("40 MiB into 32: %v", err)
	}
	if err := os.Remove(filepath.Join(u.target, "large")); err != nil {
		t.Fatal(err)
	}
	u.grow(64 << 20)
	if err := fill("kept"); err != nil {
		t.Errorf("40 MiB into 64: %v", err)
	}
	if status.Code(remove(t, d, "a")) != codes.FailedPrecondition {
		t.Error("deleted while it is used")
	}
	u.leave()
	u.use()
	if info, err := os.Stat(filepath.Join(u.target, "kept")); err != nil || info.Size() != 40<<20 {
		t.Errorf("what is on it: %v", err)
	}
	u.leave()
	for range 2 {
		if err := remove(t, d, "a"); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(d.volumes()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestDevice checks the same properties as TestFileSystem for a block volume.
func TestDevice(t *testing.T) {
	unshare.Need(t)
	d := newDriver(t)
	create(t, d, request("b", 16<<20, true))
	u := newUser(t, d, "b", true)
	u.use()
	write := func(at int64) error {
		f, err := os.OpenFile(u.target, os.O_WRONLY|os.O_SYNC, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(bytes.Repeat([]byte("x"), 4096), at)
		return errors.Join(err, f.Close())
	}
	if err := write(20 << 20); err == nil {
		t.Error("written beyond the end")
	}
	u.grow(32 << 20)
	if err := write(20 << 20); err != nil {
		t.Error(err)
	}
	u.leave()
	if err := remove(t, d, "b"); err != nil {
		t.Fatal(err)
	}
}

// TestRefused checks the gRPC codes with which the driver rejects requests.
func TestRefused(t *testing.T) {
	unshare.Need(t)
	d := newDriver(t)
	create(t, d, request("there", 16<<20, true))
	many, other, far, source := request("a", 1, true), request("a", 1, false), request("a", 1, true), request("a", 1, true)
	many.VolumeCapabilities[0].AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	other.VolumeCapabilities[0].GetMount().FsType = "xfs"
	far.AccessibilityRequirements = &csi.TopologyRequirement{
		Requisite: []*csi.Topology{{Segments: map[string]string{TopologyKey: "n2"}}}}
	source.VolumeContentSource = &csi.VolumeContentSource{}
	small := request("a", 1, true)
	small.CapacityRange.LimitBytes = 1 << 20
	for name, tc := range map[string]struct {
		r    *csi.CreateVolumeRequest
		want codes.Code
	}{
		"several nodes":            {many, codes.InvalidArgument},
		"file system":              {other, codes.InvalidArgument},
		"another node":             {far, codes.ResourceExhausted},
		"source":                   {source, codes.InvalidArgument},
		"limit":                    {small, codes.OutOfRange},
		"name":                     {request("../x", 1, true), codes.InvalidArgument},
		"disk full":                {request("a", 1<<50, true), codes.ResourceExhausted},
		"overflow":                 {request("a", 1<<63-1, true), codes.OutOfRange},
		"exists with smaller size": {request("there", 32<<20, true), codes.AlreadyExists},
		"exists as device":         {request("there", 16<<20, false), codes.AlreadyExists},
	} {
		if _, err := d.CreateVolume(t.Context(), tc.r); status.Code(err) != tc.want {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// TestPromisedSpaceIsReserved checks that space that was promised to one volume is not promised to
// another, even while the first volume does not use it.
func TestPromisedSpaceIsReserved(t *testing.T) {
	d := newDriver(t)
	before, err := d.room()
	if err != nil {
		t.Fatal(err)
	}
	size := before / unit / 2 * unit
	create(t, d, request("half", size, true))
	if _, err := d.CreateVolume(t.Context(), request("more", size+(size/4)/unit*unit, true)); status.Code(
		err) != codes.ResourceExhausted {
		t.Errorf("promised twice: %v", err)
	}
}

// TestIncompleteVolumesAreRemoved checks that a volume whose creation was interrupted reserves no
// space and is removed.
func TestIncompleteVolumesAreRemoved(t *testing.T) {
	d := newDriver(t)
	for _, name := range []string{making + "a", going + "b"} {
		if err := os.MkdirAll(filepath.Join(d.volumes(), name), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d.volumes(), name, diskName), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	create(t, d, request("a", 16<<20, true))
	if err := d.removeIncomplete(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(d.volumes()); err != nil || len(left) != 1 || left[0].Name() != "a" {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestListenReplacesSockets checks that the sockets of an earlier process are replaced when Listen
// returns, and stay afterwards: a kubelet would unregister the driver if one was removed later.
func TestListenReplacesSockets(t *testing.T) {
	cfg := Config{RootDir: t.TempDir(), NodeName: "n", Log: slog.New(slog.DiscardHandler)}
	socket := filepath.Join(cfg.RootDir, "plugins_registry", Name+"-reg.sock")
	for range 2 { // the first driver leaves its sockets to the second
		serve, err := New(cfg).Listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		listening, err := os.Stat(socket)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- serve(ctx) }()
		conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		info, err := registration.NewRegistrationClient(conn).GetInfo(t.Context(), &registration.InfoRequest{})
		if err != nil || info.GetName() != Name {
			t.Errorf("info %v, %v", info, err)
		}
		// The inode number alone is not enough, because a new file can get that of a removed one.
		if serving, err := os.Stat(socket); err != nil || !os.SameFile(listening, serving) ||
			!serving.ModTime().Equal(listening.ModTime()) {
			t.Errorf("the socket was replaced after Listen: %v", err)
		}
		cancel()
		if err := errors.Join(<-ended, conn.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(socket); err != nil {
			t.Errorf("the socket was removed at the end: %v", err)
		}
	}
}
