// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"path/filepath"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"

	"keelson.dev/keelson/pkg/loop"
	"keelson.dev/keelson/test/unshare"
)

func TestMain(m *testing.M) { unshare.Run(m, unshare.Mount) }

// TestDeviceOfManyNodes: nodes that share a kernel share a volume's device, which stays
// until the last of them has unstaged the volume.
func TestDeviceOfManyNodes(t *testing.T) {
	unshare.Need(t)
	root, ctx := t.TempDir(), t.Context()
	first, second := &Driver{Name: "d", Node: "n1", Root: root}, &Driver{Name: "d", Node: "n2", Root: root}
	block := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
	}
	if _, err := first.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20}, VolumeCapabilities: []*csi.VolumeCapability{block},
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = loop.Detach(filepath.Join(root, volumes, "v", diskName)) })
	device := func() string {
		at, err := loop.Of(filepath.Join(root, volumes, "v", diskName))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	staging := t.TempDir()
	for _, d := range []*Driver{first, second, second} { // it may be repeated
		if _, err := d.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: staging, VolumeCapability: block}); err != nil {
			t.Fatal(err)
		}
	}
	at := device()
	for _, step := range []struct {
		d    *Driver
		want string
	}{{first, at}, {first, at}, {second, ""}, {second, ""}} {
		if _, err := step.d.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: staging}); err != nil {
			t.Fatal(err)
		}
		if got := device(); got != step.want {
			t.Errorf("after %s unstaged it: device %q, want %q", step.d.Node, got, step.want)
		}
	}
}
