// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"os"
	"path/filepath"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"

	"keelson.dev/keelson/pkg/loopdev"
	"keelson.dev/keelson/test/unshare"
)

func TestMain(m *testing.M) { unshare.Run(m, unshare.Mount) }

// TestDeviceOfManyNodes checks that nodes which share a kernel use the same loop device of a
// volume, and that the device stays until the last of them has unstaged the volume.
func TestDeviceOfManyNodes(t *testing.T) {
	unshare.Need(t)
	root, ctx := t.TempDir(), t.Context()
	first, second := &Driver{Name: "d", Node: "n1", Root: root}, &Driver{Name: "d", Node: "n2", Root: root}
	makeBlock(t, first)
	device := func() string {
		at, err := loopdev.DeviceOf(filepath.Join(root, volumes, "v", diskName))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	staging := t.TempDir()
	for _, d := range []*Driver{first, second, second} { // second is staged twice, because calls may be repeated
		if _, err := d.NodeStageVolume(ctx,
			&csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: staging, VolumeCapability: block}); err != nil {
			t.Fatal(err)
		}
	}
	at := device()
	for _, step := range []struct {
		d    *Driver
		want string
	}{{first, at}, {first, at}, {second, ""}, {second, ""}} {
		if _, err := step.d.NodeUnstageVolume(ctx,
			&csi.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: staging}); err != nil {
			t.Fatal(err)
		}
		if got := device(); got != step.want {
			t.Errorf("after %s unstaged it: device %q, want %q", step.d.Node, got, step.want)
		}
	}
}

// block is the CSI capability for a block volume.
var block = &csi.VolumeCapability{
	AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
}

// makeBlock creates a block volume with the ID v.
func makeBlock(t *testing.T, d *Driver) {
	t.Helper()
	if _, err := d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20},
		VolumeCapabilities: []*csi.VolumeCapability{block},
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = loopdev.Detach(filepath.Join(d.Root, volumes, "v", diskName)) })
}

// TestDeviceOfLostNode checks that a deleted volume leaves no loop device behind, even if the node
// that staged it no longer exists.
func TestDeviceOfLostNode(t *testing.T) {
	unshare.Need(t)
	d := &Driver{Name: "d", Node: "n", Root: t.TempDir()}
	makeBlock(t, d)
	if _, err := d.NodeStageVolume(t.Context(),
		&csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: t.TempDir(), VolumeCapability: block}); err != nil {
		t.Fatal(err)
	}
	// A hard link keeps the file, so that its loop device can be looked up later.
	kept := filepath.Join(d.Root, "kept")
	if err := os.Link(filepath.Join(d.Root, volumes, "v", diskName), kept); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = loopdev.Detach(kept) })
	if _, err := d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "v"}); err != nil {
		t.Fatal(err)
	}
	if dev, err := loopdev.DeviceOf(kept); err != nil || dev != "" {
		t.Errorf("device %q, %v", dev, err)
	}
}

// TestCapacityAtFirst checks that the driver reports capacity before the first volume is created.
func TestCapacityAtFirst(t *testing.T) {
	d := &Driver{Root: filepath.Join(t.TempDir(), "volumes")}
	if _, err := d.GetCapacity(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
