// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/loopdev"
)

// NodeGetInfo implements csi.NodeServer. It registers the node with the driver, so that volumes can
// be attached to it.
func (d *Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	if !plain.MatchString(d.Node) {
		return nil, status.Errorf(codes.FailedPrecondition, "%q is not a node", d.Node)
	}
	out := &csi.NodeGetInfoResponse{NodeId: d.Node, MaxVolumesPerNode: d.MaxVolumes}
	if d.Zone != "" {
		out.AccessibleTopology = reached(d.Zone)[0]
	}
	return out, os.MkdirAll(d.dir(nodes, d.Node), 0o750)
}

// NodeGetCapabilities implements csi.NodeServer.
func (d *Driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (
	*csi.NodeGetCapabilitiesResponse, error) {
	out := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		out.Capabilities = append(out.Capabilities,
			&csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}})
	}
	return out, nil
}

// NodeStageVolume implements csi.NodeServer. It bind-mounts the directory of a volume, or attaches
// a loop device to the file of a block volume.
func (d *Driver) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (
	*csi.NodeStageVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetStagingTargetPath() == "" || r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "volume, path and capability are required")
	}
	return locked(d, func() (*csi.NodeStageVolumeResponse, error) {
		i, err := d.find(volumes, r.GetVolumeId())
		if err != nil {
			return nil, err
		}
		if i.Block != (r.GetVolumeCapability().GetBlock() != nil) {
			return nil, status.Errorf(codes.InvalidArgument, "volume %s is of another type", i.Name)
		}
		if at, attached := r.GetPublishContext()["node"]; attached && at != d.Node {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to %q, this is %q", i.Name, at, d.Node)
		}
		if i.Block {
			err = d.use(i)
		} else {
			err = bind(filepath.Join(d.dir(volumes, i.Name), filesName), r.GetStagingTargetPath(), false)
		}
		return &csi.NodeStageVolumeResponse{}, err
	})
}

// NodeUnstageVolume implements csi.NodeServer.
func (d *Driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (
	*csi.NodeUnstageVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume and path are required")
	}
	return locked(d, func() (*csi.NodeUnstageVolumeResponse, error) {
		if err := unbind(r.GetStagingTargetPath()); err != nil {
			return nil, err
		}
		i, err := d.find(volumes, r.GetVolumeId())
		if err == nil && i.Block {
			return &csi.NodeUnstageVolumeResponse{}, d.leave(i)
		}
		return &csi.NodeUnstageVolumeResponse{}, nil
	})
}

// NodePublishVolume implements csi.NodeServer.
func (d *Driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (
	*csi.NodePublishVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" || r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "volume, path and capability are required")
	}
	return locked(d, func() (*csi.NodePublishVolumeResponse, error) {
		if r.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] == "true" {
			if err := d.own(r.GetVolumeId()); err != nil {
				return nil, err
			}
		}
		i, err := d.find(volumes, r.GetVolumeId())
		if err != nil {
			return nil, err
		}
		source, target := filepath.Join(d.dir(volumes, i.Name), filesName), r.GetTargetPath()
		if i.Block {
			if err = d.attach(i); err == nil {
				source, err = loopdev.DeviceOf(d.disk(i))
			}
			if err == nil {
				err = file(target)
			}
		} else {
			err = os.MkdirAll(target, 0o750)
		}
		if err != nil {
			return nil, err
		}
		return &csi.NodePublishVolumeResponse{}, bind(source, target, r.GetReadonly())
	})
}

// own creates an inline volume of a pod.
func (d *Driver) own(id string) error {
	if _, err := d.find(volumes, id); status.Code(err) != codes.NotFound {
		return err
	}
	i := &item{Name: id, Size: defaultSize, Source: "pod"}
	if err := content(d.dir(volumes, id), i, ""); err != nil {
		return err
	}
	return d.keep(volumes, id, i)
}

func file(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// NodeUnpublishVolume implements csi.NodeServer.
func (d *Driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (
	*csi.NodeUnpublishVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume and path are required")
	}
	return locked(d, func() (*csi.NodeUnpublishVolumeResponse, error) {
		if err := unbind(r.GetTargetPath()); err != nil {
			return nil, err
		}
		if err := os.Remove(r.GetTargetPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if i, err := d.find(volumes, r.GetVolumeId()); err == nil && i.Source == "pod" {
			return &csi.NodeUnpublishVolumeResponse{}, d.drop(volumes, i.Name)
		}
		return &csi.NodeUnpublishVolumeResponse{}, nil
	})
}

// NodeExpandVolume implements csi.NodeServer.
func (d *Driver) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (
	*csi.NodeExpandVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume and path are required")
	}
	i, err := d.find(volumes, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(r.GetVolumePath()); err != nil {
		return nil, status.Errorf(codes.NotFound, "volume path: %v", err)
	}
	if i.Block {
		err = loopdev.Resize(d.disk(i))
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: i.Size}, err
}

// NodeGetVolumeStats implements csi.NodeServer.
func (d *Driver) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (
	*csi.NodeGetVolumeStatsResponse, error) {
	if r.GetVolumeId() == "" || r.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume and path are required")
	}
	i, err := d.find(volumes, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	var fsys unix.Statfs_t
	if err := unix.Statfs(r.GetVolumePath(), &fsys); err != nil {
		return nil, status.Errorf(codes.NotFound, "volume path: %v", err)
	}
	bytes := &csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES, Total: i.Size}
	if i.Block {
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{bytes}}, nil
	}
	used, files, err := usage(r.GetVolumePath())
	bytes.Used, bytes.Available = used, max(i.Size-used, 0)
	inodes := &csi.VolumeUsage{Unit: csi.VolumeUsage_INODES, Total: int64(fsys.Files), Used: files,
		Available: int64(fsys.Ffree)}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{bytes, inodes}}, err
}

func usage(dir string) (bytes, files int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // a pod may remove files meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		files++
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes, files, err
}

// bind bind-mounts source at target, unless target already is a mount point.
func bind(source, target string, readOnly bool) error {
	mounted, err := mountinfo.Mounted(target)
	if err != nil || mounted {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	if !readOnly {
		return nil
	}
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

func unbind(target string) error {
	for {
		mounted, err := mountinfo.Mounted(target)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !mounted {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
}

func (d *Driver) disk(i *item) string { return filepath.Join(d.dir(volumes, i.Name), diskName) }

// use attaches a loop device to a block volume and records that this node uses it. All nodes of a
// test share a kernel, and a file has one loop device, so the device stays until no node uses it.
func (d *Driver) use(i *item) error {
	if !slices.Contains(i.Staged, d.Node) {
		i.Staged = append(i.Staged, d.Node)
		if err := d.keep(volumes, i.Name, i); err != nil {
			return err
		}
	}
	return d.attach(i)
}

// leave records that this node does not use the volume's loop device any more. If no other node
// uses it, the device is detached.
func (d *Driver) leave(i *item) error {
	i.Staged = slices.DeleteFunc(i.Staged, func(n string) bool { return n == d.Node })
	if len(i.Staged) == 0 {
		if err := loopdev.Detach(d.disk(i)); err != nil {
			return err
		}
	}
	return d.keep(volumes, i.Name, i)
}

// attach attaches a loop device to a block volume, unless the volume already has one.
func (d *Driver) attach(i *item) error {
	dev, err := loopdev.Attach(d.disk(i), false)
	if err != nil {
		return err
	}
	return dev.Close()
}
