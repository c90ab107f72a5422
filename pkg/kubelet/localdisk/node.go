// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package localdisk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"

	"keelson.dev/keelson/pkg/loopdev"
)

// NodeGetInfo implements csi.NodeServer.
func (d *Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.cfg.NodeName, AccessibleTopology: d.here()}, nil
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

// NodeStageVolume implements csi.NodeServer. It mounts a file system, or attaches a device.
func (d *Driver) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (
	*csi.NodeStageVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetStagingTargetPath() == "" || r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "volume, path and capability are required")
	}
	if err := checkCapabilities([]*csi.VolumeCapability{r.GetVolumeCapability()}); err != nil {
		return nil, err
	}
	return alone(d, r.GetVolumeId(), func() (*csi.NodeStageVolumeResponse, error) {
		i, err := d.find(r.GetVolumeId())
		if err == nil && i.Block != (r.GetVolumeCapability().GetBlock() != nil) {
			err = errKind(i)
		}
		if err != nil {
			return nil, err
		}
		if i.Block {
			var dev *loopdev.Device
			if dev, err = loopdev.Attach(i.disk(), false); err == nil {
				err = dev.Close()
			}
		} else {
			err = i.mount(ctx, r.GetStagingTargetPath(), r.GetVolumeCapability().GetMount().GetMountFlags())
		}
		return &csi.NodeStageVolumeResponse{}, err
	})
}

// mount attaches the volume to a loop device and mounts its file system. It does nothing if target
// is a mount point.
func (i *image) mount(ctx context.Context, target string, options []string) error {
	mounted, err := mountinfo.Mounted(target)
	if err != nil || mounted {
		return err
	}
	used, err := loopdev.DeviceOf(i.disk())
	if err != nil {
		return err
	}
	if used == "" {
		if err := i.prepare(ctx); err != nil {
			return err
		}
	}
	dev, err := loopdev.Attach(i.disk(), true)
	if err != nil {
		return err
	}
	// With the option discard, the blocks of deleted files are freed on the node's disk.
	if err := mount.New("").Mount(dev.Path, target, fsType, append([]string{"discard"}, options...)); err != nil {
		return closeDevice(dev, fmt.Errorf("mount volume: %w", err))
	}
	// Some databases require an empty directory. e2fsck creates lost+found again if it needs it.
	if err := os.Remove(filepath.Join(target, "lost+found")); err != nil && !errors.Is(err, fs.ErrNotExist) &&
		!errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EROFS) {
		return closeDevice(dev, fmt.Errorf("root of volume: %w", err))
	}
	return dev.Close()
}

// NodeUnstageVolume implements csi.NodeServer.
func (d *Driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (
	*csi.NodeUnstageVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume and path are required")
	}
	return alone(d, r.GetVolumeId(), func() (*csi.NodeUnstageVolumeResponse, error) {
		if err := unmount(r.GetStagingTargetPath()); err != nil {
			return nil, err
		}
		i, err := d.find(r.GetVolumeId())
		if err == nil && i.Block {
			return &csi.NodeUnstageVolumeResponse{}, loopdev.Detach(i.disk())
		}
		if err != nil && status.Code(err) != codes.NotFound {
			return nil, err
		}
		return &csi.NodeUnstageVolumeResponse{}, nil
	})
}

// NodePublishVolume implements csi.NodeServer.
func (d *Driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (
	*csi.NodePublishVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" || r.GetStagingTargetPath() == "" ||
		r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "volume, path and capability are required")
	}
	return alone(d, r.GetVolumeId(), func() (*csi.NodePublishVolumeResponse, error) {
		i, err := d.find(r.GetVolumeId())
		if err == nil && i.Block != (r.GetVolumeCapability().GetBlock() != nil) {
			err = errKind(i)
		}
		if err != nil {
			return nil, err
		}
		source := r.GetStagingTargetPath()
		if i.Block {
			if source, err = loopdev.DeviceOf(i.disk()); err == nil && source == "" {
				err = status.Errorf(codes.FailedPrecondition, "volume %s is not staged", i.ID)
			}
			if err == nil {
				err = file(r.GetTargetPath())
			}
		} else if err = staged(source); err == nil {
			err = os.MkdirAll(r.GetTargetPath(), 0o750)
		}
		if err != nil {
			return nil, err
		}
		return &csi.NodePublishVolumeResponse{}, bind(source, r.GetTargetPath(), r.GetReadonly())
	})
}

// staged returns an error if nothing is mounted at path. Otherwise a pod would write to the node's
// disk instead of the volume.
func staged(path string) error {
	mounted, err := mountinfo.Mounted(path)
	if err == nil && !mounted {
		return status.Errorf(codes.FailedPrecondition, "no volume is staged at %s", path)
	}
	return err
}

// NodeUnpublishVolume implements csi.NodeServer.
func (d *Driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (
	*csi.NodeUnpublishVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume and path are required")
	}
	return alone(d, r.GetVolumeId(), func() (*csi.NodeUnpublishVolumeResponse, error) {
		if err := unmount(r.GetTargetPath()); err != nil {
			return nil, err
		}
		if err := os.Remove(r.GetTargetPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("unpublish: %w", err)
		}
		return &csi.NodeUnpublishVolumeResponse{}, nil
	})
}

// NodeExpandVolume implements csi.NodeServer. It grows the device and the file system on it.
func (d *Driver) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (
	*csi.NodeExpandVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume and path are required")
	}
	return alone(d, r.GetVolumeId(), func() (*csi.NodeExpandVolumeResponse, error) {
		i, err := d.find(r.GetVolumeId())
		if err != nil {
			return nil, err
		}
		if _, err := os.Lstat(r.GetVolumePath()); err != nil {
			return nil, status.Errorf(codes.NotFound, "volume path: %v", err)
		}
		if err := loopdev.Resize(i.disk()); err != nil {
			return nil, err
		}
		if !i.Block {
			err = i.fillDisk(r.GetVolumePath())
		}
		return &csi.NodeExpandVolumeResponse{CapacityBytes: i.Size}, err
	})
}

// NodeGetVolumeStats implements csi.NodeServer.
func (d *Driver) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (
	*csi.NodeGetVolumeStatsResponse, error) {
	if r.GetVolumeId() == "" || r.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume and path are required")
	}
	i, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	var fsys unix.Statfs_t
	if err := unix.Statfs(r.GetVolumePath(), &fsys); err != nil {
		return nil, status.Errorf(codes.NotFound, "volume path: %v", err)
	}
	if i.Block {
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: i.Size}}}, nil
	}
	bytes := &csi.VolumeUsage{
		Unit: csi.VolumeUsage_BYTES, Total: int64(fsys.Blocks) * fsys.Bsize,
		Used: int64(fsys.Blocks-fsys.Bfree) * fsys.Bsize, Available: int64(fsys.Bavail) * fsys.Bsize,
	}
	inodes := &csi.VolumeUsage{Unit: csi.VolumeUsage_INODES, Total: int64(fsys.Files),
		Used: int64(fsys.Files - fsys.Ffree), Available: int64(fsys.Ffree)}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{bytes, inodes}}, nil
}

func file(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("mount point of device: %w", err)
	}
	return f.Close()
}

// bind bind-mounts source at target. If target is already a mount point, it only makes it read-only
// if required.
func bind(source, target string, readOnly bool) error {
	mounted, err := mountinfo.Mounted(target)
	if err != nil {
		return err
	}
	if !mounted {
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	if !readOnly {
		return nil
	}
	// Repeat the remount even if target was already mounted. If an earlier process was killed
	// between the two mount calls, target is still writable.
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("publish read-only: %w", err)
	}
	return nil
}

// unmount removes all mounts at a path.
func unmount(target string) error {
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
