// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/loopdev"
)

const (
	defaultSize = 1 << 30
	maxSize     = 1 << 44
)

// GetPluginInfo implements csi.IdentityServer.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.Name, VendorVersion: "1.0.0"}, nil
}

// GetPluginCapabilities implements csi.IdentityServer.
func (d *Driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (
	*csi.GetPluginCapabilitiesResponse, error) {
	services := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE,
		csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE}
	if d.Zone != "" {
		services = append(services, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	online := &csi.PluginCapability{
		Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE}}}
	out := &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{online}}
	for _, t := range services {
		out.Capabilities = append(out.Capabilities,
			&csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}})
	}
	return out, nil
}

// Probe implements csi.IdentityServer.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (d *Driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (
	*csi.ControllerGetCapabilitiesResponse, error) {
	out := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER, csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	} {
		if d.NoAttach && t == csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME {
			continue
		}
		out.Capabilities = append(out.Capabilities,
			&csi.ControllerServiceCapability{
				Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return out, nil
}

// CreateVolume implements csi.ControllerServer.
func (d *Driver) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if !plain.MatchString(r.GetName()) || len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "a volume needs a plain name and capabilities")
	}
	size, limit := r.GetCapacityRange().GetRequiredBytes(), r.GetCapacityRange().GetLimitBytes()
	if size == 0 {
		size = defaultSize
		if limit > 0 {
			size = min(size, limit)
		}
	}
	if size > maxSize || limit > 0 && size > limit {
		return nil, status.Errorf(codes.OutOfRange, "volumes of %d bytes are not supported", size)
	}
	want := &item{Name: r.GetName(), Size: size, Block: r.GetVolumeCapabilities()[0].GetBlock() != nil,
		Zone: zone(r.GetAccessibilityRequirements())}
	if err := want.change(r.GetMutableParameters()); err != nil {
		return nil, err
	}
	return locked(d, func() (*csi.CreateVolumeResponse, error) {
		from, err := d.source(r.GetVolumeContentSource(), want)
		if err != nil {
			return nil, err
		}
		have, err := d.find(volumes, want.Name)
		switch {
		case err == nil && (have.Size < size || limit > 0 && have.Size > limit || have.Block != want.Block ||
			have.Source != want.Source):
			return nil, status.Errorf(codes.AlreadyExists, "volume %s exists with other properties", want.Name)
		case err == nil:
			want = have
		case status.Code(err) != codes.NotFound:
			return nil, err
		default:
			if err := content(d.dir(volumes, want.Name), want, from); err != nil {
				return nil, err
			}
			if err := d.keep(volumes, want.Name, want); err != nil {
				return nil, err
			}
		}
		return &csi.CreateVolumeResponse{Volume: &csi.Volume{
			VolumeId: want.Name, CapacityBytes: want.Size, ContentSource: r.GetVolumeContentSource(),
			AccessibleTopology: reached(want.Zone),
		}}, nil
	})
}

// source returns the directory whose content the new volume want gets, or "" for an empty volume. It
// also sets want.Source.
func (d *Driver) source(s *csi.VolumeContentSource, want *item) (string, error) {
	kind, id := snapshots, s.GetSnapshot().GetSnapshotId()
	if s.GetVolume() != nil {
		kind, id = volumes, s.GetVolume().GetVolumeId()
	}
	if s == nil {
		return "", nil
	}
	from, err := d.find(kind, id)
	if err != nil {
		return "", err
	}
	if from.Block != want.Block || from.Size > want.Size {
		return "", status.Errorf(codes.InvalidArgument, "%s is of another kind, or larger", id)
	}
	want.Source = kind + "/" + id
	return d.dir(kind, id), nil
}

// DeleteVolume implements csi.ControllerServer.
func (d *Driver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume is required")
	}
	return locked(d, func() (*csi.DeleteVolumeResponse, error) {
		i, err := d.find(volumes, r.GetVolumeId())
		if err == nil && len(i.Nodes) > 0 {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to %v", i.Name, i.Nodes)
		}
		if err == nil && i.Block { // a node that no longer exists may not have unstaged the volume
			if err := loopdev.Detach(d.disk(i)); err != nil {
				return nil, err
			}
		}
		return &csi.DeleteVolumeResponse{}, d.drop(volumes, r.GetVolumeId())
	})
}

// single reports whether the capability permits use of the volume on one node only.
func single(c *csi.VolumeCapability) bool {
	switch c.GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return false
	default:
		return true
	}
}

// ControllerPublishVolume implements csi.ControllerServer.
func (d *Driver) ControllerPublishVolume(_ context.Context, r *csi.ControllerPublishVolumeRequest) (
	*csi.ControllerPublishVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetNodeId() == "" || r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "volume, node and capability are required")
	}
	return locked(d, func() (*csi.ControllerPublishVolumeResponse, error) {
		i, err := d.find(volumes, r.GetVolumeId())
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(d.dir(nodes, r.GetNodeId())); err != nil || !plain.MatchString(r.GetNodeId()) {
			return nil, status.Errorf(codes.NotFound, "no such node: %q", r.GetNodeId())
		}
		if !slices.Contains(i.Nodes, r.GetNodeId()) {
			if len(i.Nodes) > 0 && single(r.GetVolumeCapability()) {
				return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to %v", i.Name, i.Nodes)
			}
			i.Nodes = append(i.Nodes, r.GetNodeId())
			if err := d.keep(volumes, i.Name, i); err != nil {
				return nil, err
			}
		}
		return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"node": r.GetNodeId()}}, nil
	})
}

// ControllerUnpublishVolume implements csi.ControllerServer.
func (d *Driver) ControllerUnpublishVolume(_ context.Context, r *csi.ControllerUnpublishVolumeRequest) (
	*csi.ControllerUnpublishVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume is required")
	}
	return locked(d, func() (*csi.ControllerUnpublishVolumeResponse, error) {
		i, err := d.find(volumes, r.GetVolumeId())
		if status.Code(err) == codes.NotFound {
			return &csi.ControllerUnpublishVolumeResponse{}, nil
		}
		if err != nil {
			return nil, err
		}
		i.Nodes = slices.DeleteFunc(i.Nodes, func(n string) bool { return r.GetNodeId() == "" || n == r.GetNodeId() })
		return &csi.ControllerUnpublishVolumeResponse{}, d.keep(volumes, i.Name, i)
	})
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (d *Driver) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (
	*csi.ValidateVolumeCapabilitiesResponse, error) {
	if r.GetVolumeId() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume and capability are required")
	}
	if _, err := d.find(volumes, r.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeCapabilities: r.GetVolumeCapabilities()}}, nil
}

// ControllerExpandVolume implements csi.ControllerServer.
func (d *Driver) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (
	*csi.ControllerExpandVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "volume and attributes are required")
	}
	size := r.GetCapacityRange().GetRequiredBytes()
	if size > maxSize {
		return nil, status.Errorf(codes.OutOfRange, "volumes of %d bytes are not supported", size)
	}
	return locked(d, func() (*csi.ControllerExpandVolumeResponse, error) {
		i, err := d.find(volumes, r.GetVolumeId())
		if err != nil {
			return nil, err
		}
		if i.Size < size {
			i.Size = size
			if i.Block {
				err = os.Truncate(filepath.Join(d.dir(volumes, i.Name), diskName), size)
			}
			if err == nil {
				err = d.keep(volumes, i.Name, i)
			}
		}
		return &csi.ControllerExpandVolumeResponse{CapacityBytes: i.Size, NodeExpansionRequired: true}, err
	})
}

// CreateSnapshot implements csi.ControllerServer.
func (d *Driver) CreateSnapshot(_ context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if !plain.MatchString(r.GetName()) || r.GetSourceVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "a snapshot needs a plain name and a volume")
	}
	return locked(d, func() (*csi.CreateSnapshotResponse, error) {
		i, err := d.take(r.GetName(), r.GetSourceVolumeId(), "")
		if err != nil {
			return nil, err
		}
		return &csi.CreateSnapshotResponse{Snapshot: i.snapshot()}, nil
	})
}

// take takes a snapshot of a volume, unless the snapshot already exists. group is the group of the
// snapshot, or "".
func (d *Driver) take(name, volume, group string) (*item, error) {
	have, err := d.find(snapshots, name)
	if err == nil {
		if have.Source != volume || have.Group != group {
			return nil, status.Errorf(codes.AlreadyExists, "snapshot %s belongs to another volume", name)
		}
		return have, nil
	}
	of, err := d.find(volumes, volume)
	if err != nil {
		return nil, err
	}
	i := &item{Name: name, Size: of.Size, Block: of.Block, Source: of.Name, Group: group, Made: clock.Real().Now().Unix()}
	if err := content(d.dir(snapshots, i.Name), i, d.dir(volumes, of.Name)); err != nil {
		return nil, err
	}
	return i, d.keep(snapshots, i.Name, i)
}

func (i *item) snapshot() *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: i.Name, SourceVolumeId: i.Source, SizeBytes: i.Size, ReadyToUse: true, GroupSnapshotId: i.Group,
		CreationTime: &timestamppb.Timestamp{Seconds: i.Made},
	}
}

// DeleteSnapshot implements csi.ControllerServer.
func (d *Driver) DeleteSnapshot(_ context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if r.GetSnapshotId() == "" {
		return nil, status.Error(codes.InvalidArgument, "snapshot is required")
	}
	return locked(d, func() (*csi.DeleteSnapshotResponse, error) {
		return &csi.DeleteSnapshotResponse{}, d.drop(snapshots, r.GetSnapshotId())
	})
}

// ListSnapshots implements csi.ControllerServer.
func (d *Driver) ListSnapshots(_ context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	return locked(d, func() (*csi.ListSnapshotsResponse, error) {
		names, err := d.list(snapshots)
		if err != nil {
			return nil, err
		}
		var all []*csi.ListSnapshotsResponse_Entry
		for _, name := range names {
			i, err := d.find(snapshots, name)
			if err != nil {
				return nil, err
			}
			if (r.GetSnapshotId() == "" || r.GetSnapshotId() == name) &&
				(r.GetSourceVolumeId() == "" || r.GetSourceVolumeId() == i.Source) {
				all = append(all, &csi.ListSnapshotsResponse_Entry{Snapshot: i.snapshot()})
			}
		}
		return page(all, r.GetStartingToken(), int(r.GetMaxEntries()))
	})
}

// page returns the part of a list that follows the position token. The argument most is the maximum
// number of entries.
func page(all []*csi.ListSnapshotsResponse_Entry, token string, most int) (*csi.ListSnapshotsResponse, error) {
	first := 0
	if token != "" {
		var err error
		if first, err = strconv.Atoi(token); err != nil || first > len(all) {
			return nil, status.Errorf(codes.Aborted, "token %q does not belong to this list", token)
		}
	}
	out := &csi.ListSnapshotsResponse{Entries: all[first:]}
	if most > 0 && len(out.Entries) > most {
		out.Entries, out.NextToken = out.Entries[:most], strconv.Itoa(first+most)
	}
	return out, nil
}
