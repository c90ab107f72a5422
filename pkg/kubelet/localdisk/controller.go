// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package localdisk

import (
	"context"
	"errors"
	"fmt"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"keelson.dev/keelson/pkg/loopdev"
)

// ControllerGetCapabilities implements csi.ControllerServer.
func (d *Driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (
	*csi.ControllerGetCapabilitiesResponse, error) {
	out := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY, csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		out.Capabilities = append(out.Capabilities,
			&csi.ControllerServiceCapability{
				Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return out, nil
}

// CreateVolume implements csi.ControllerServer.
func (d *Driver) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	want, err := d.wanted(r)
	if err != nil {
		return nil, err
	}
	return alone(d, want.ID, func() (*csi.CreateVolumeResponse, error) {
		have, err := d.find(want.ID)
		limit := r.GetCapacityRange().GetLimitBytes()
		switch {
		case err == nil && (have.Size < want.Size || limit > 0 && have.Size > limit || have.Block != want.Block):
			return nil, status.Errorf(codes.AlreadyExists, "volume %s exists with other properties", want.ID)
		case err == nil:
			want = have
		case status.Code(err) != codes.NotFound:
			return nil, err
		default:
			if err := d.promise(want.Size, func() error { return d.make(ctx, want) }); err != nil {
				return nil, err
			}
		}
		return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: want.ID, CapacityBytes: want.Size,
			AccessibleTopology: []*csi.Topology{d.here()}}}, nil
	})
}

// wanted returns the volume that a request describes, or an error if the request is invalid.
func (d *Driver) wanted(r *csi.CreateVolumeRequest) (*image, error) {
	if !identifier.MatchString(r.GetName()) {
		return nil, status.Errorf(codes.InvalidArgument, "%q is not a valid name of a volume", r.GetName())
	}
	if r.GetVolumeContentSource() != nil {
		return nil, status.Error(codes.InvalidArgument, "volumes cannot be created from a source")
	}
	if len(r.GetParameters()) > 0 {
		return nil, status.Errorf(codes.InvalidArgument, "parameters are not supported, got %d", len(r.GetParameters()))
	}
	if err := checkCapabilities(r.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	if !d.reachable(r.GetAccessibilityRequirements()) {
		return nil, status.Errorf(codes.ResourceExhausted,
			"volumes of node %s are accessible from that node only", d.cfg.NodeName)
	}
	size, err := rounded(r.GetCapacityRange())
	return &image{ID: r.GetName(), Size: size, Block: r.GetVolumeCapabilities()[0].GetBlock() != nil}, err
}

// rounded returns the size of a volume in bytes for a requested range: a multiple of unit, and at
// least smallest.
func rounded(r *csi.CapacityRange) (int64, error) {
	size, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	if size == 0 {
		size = defaultSize
		if limit > 0 {
			size = min(size, limit/unit*unit)
		}
	}
	if size > largest {
		return 0, status.Errorf(codes.OutOfRange, "volumes of %d bytes are not supported", size)
	}
	size = max((size+unit-1)/unit*unit, smallest)
	if limit > 0 && size > limit {
		return 0, status.Errorf(codes.OutOfRange,
			"the size of a volume must be a multiple of %d bytes and at least %d", unit, smallest)
	}
	return size, nil
}

// checkCapabilities returns an error unless the driver supports all the requested capabilities.
func checkCapabilities(all []*csi.VolumeCapability) error {
	if len(all) == 0 {
		return status.Error(codes.InvalidArgument, "volume capability is required")
	}
	for _, c := range all {
		switch c.GetAccessMode().GetMode() {
		case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
			csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		default:
			return status.Error(codes.InvalidArgument, "a volume on a node's disk is accessible from that "+
				"node only: its access mode must be ReadWriteOnce or ReadWriteOncePod")
		}
		if t := c.GetMount().GetFsType(); t != "" && t != fsType {
			return status.Errorf(codes.InvalidArgument, "volumes have the file system %s, not %s", fsType, t)
		}
		if (c.GetBlock() != nil) != (all[0].GetBlock() != nil) {
			return status.Error(codes.InvalidArgument, "a volume is a device or has a file system")
		}
	}
	return nil
}

func (d *Driver) here() *csi.Topology {
	return &csi.Topology{Segments: map[string]string{TopologyKey: d.cfg.NodeName}}
}

// reachable reports whether the requested topology includes this node.
func (d *Driver) reachable(r *csi.TopologyRequirement) bool {
	for _, t := range r.GetRequisite() {
		if t.GetSegments()[TopologyKey] == d.cfg.NodeName {
			return true
		}
	}
	return len(r.GetRequisite()) == 0
}

// promise calls the given function, which reserves size bytes of the node's disk, if that many
// bytes are free and not promised to other volumes.
func (d *Driver) promise(size int64, take func() error) error {
	d.promising.Lock()
	defer d.promising.Unlock()
	room, err := d.room()
	if err != nil {
		return err
	}
	if size > room {
		return status.Errorf(codes.ResourceExhausted, "node %s has %d bytes free, which is less than %d",
			d.cfg.NodeName, room, size)
	}
	return take()
}

// DeleteVolume implements csi.ControllerServer.
func (d *Driver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume is required")
	}
	return alone(d, r.GetVolumeId(), func() (*csi.DeleteVolumeResponse, error) {
		i, err := d.find(r.GetVolumeId())
		if status.Code(err) == codes.NotFound {
			return &csi.DeleteVolumeResponse{}, nil
		}
		if err != nil {
			return nil, err
		}
		used, err := loopdev.DeviceOf(i.disk())
		if err != nil {
			return nil, err
		}
		if used != "" {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s is in use, by %s", i.ID, used)
		}
		return &csi.DeleteVolumeResponse{}, d.remove(i)
	})
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (d *Driver) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (
	*csi.ValidateVolumeCapabilitiesResponse, error) {
	if r.GetVolumeId() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume and capability are required")
	}
	if _, err := d.find(r.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := checkCapabilities(r.GetVolumeCapabilities()); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeCapabilities: r.GetVolumeCapabilities()}}, nil
}

// GetCapacity implements csi.ControllerServer.
func (d *Driver) GetCapacity(_ context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if t := r.GetAccessibleTopology(); t != nil && t.GetSegments()[TopologyKey] != d.cfg.NodeName {
		return &csi.GetCapacityResponse{}, nil
	}
	room, err := d.room()
	return &csi.GetCapacityResponse{AvailableCapacity: room}, err
}

// ControllerExpandVolume implements csi.ControllerServer.
func (d *Driver) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (
	*csi.ControllerExpandVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "volume and attributes are required")
	}
	size, err := rounded(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	return alone(d, r.GetVolumeId(), func() (*csi.ControllerExpandVolumeResponse, error) {
		i, err := d.find(r.GetVolumeId())
		if err != nil {
			return nil, err
		}
		if size > i.Size {
			if err := d.promise(size-i.Size, func() error { return i.enlarge(size) }); err != nil {
				return nil, err
			}
		}
		// The node service grows the device and the file system later, when a pod uses the volume.
		return &csi.ControllerExpandVolumeResponse{CapacityBytes: i.Size, NodeExpansionRequired: true}, nil
	})
}

// errKind returns the error for an operation on a block volume that only file system volumes
// support, or the reverse.
func errKind(i *image) error {
	kind := "has a file system"
	if i.Block {
		kind = "is a device"
	}
	return status.Error(codes.InvalidArgument, fmt.Sprintf("volume %s %s", i.ID, kind))
}

// closeDevice closes a device and joins the error with err.
func closeDevice(dev *loopdev.Device, err error) error { return errors.Join(err, dev.Close()) }
