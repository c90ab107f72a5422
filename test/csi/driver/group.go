// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"os"
	"slices"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"keelson.dev/api/clock"
)

// GroupControllerGetCapabilities implements csi.GroupControllerServer.
func (d *Driver) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (
	*csi.GroupControllerGetCapabilitiesResponse, error) {
	rpc := &csi.GroupControllerServiceCapability_RPC{
		Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT}
	return &csi.GroupControllerGetCapabilitiesResponse{
		Capabilities: []*csi.GroupControllerServiceCapability{{Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: rpc}}},
	}, nil
}

// CreateVolumeGroupSnapshot implements csi.GroupControllerServer. It takes the snapshots one after
// the other, so they are consistent with each other only if nothing is written meanwhile.
func (d *Driver) CreateVolumeGroupSnapshot(_ context.Context, r *csi.CreateVolumeGroupSnapshotRequest) (
	*csi.CreateVolumeGroupSnapshotResponse, error) {
	if !plain.MatchString(r.GetName()) || len(r.GetSourceVolumeIds()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "a group of snapshots needs a plain name and volumes")
	}
	sources := slices.Sorted(slices.Values(r.GetSourceVolumeIds()))
	return locked(d, func() (*csi.CreateVolumeGroupSnapshotResponse, error) {
		g, err := d.find(groups, r.GetName())
		if status.Code(err) == codes.NotFound {
			g, err = d.takeAll(r.GetName(), sources)
		}
		if err != nil {
			return nil, err
		}
		out, err := d.group(g)
		if err != nil {
			return nil, err
		}
		var of []string
		for _, s := range out.GetSnapshots() {
			of = append(of, s.GetSourceVolumeId())
		}
		if slices.Sort(of); !slices.Equal(of, sources) {
			return nil, status.Errorf(codes.AlreadyExists, "group %s has other volumes", g.Name)
		}
		return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: out}, nil
	})
}

// takeAll takes a snapshot of each volume. If an earlier attempt was interrupted, it takes that
// attempt's snapshots again.
func (d *Driver) takeAll(name string, sources []string) (*item, error) {
	g := &item{Name: name, Made: clock.Real().Now().Unix()}
	for n, volume := range sources {
		id := fmt.Sprintf("%s-%d", name, n)
		if err := d.drop(snapshots, id); err != nil {
			return nil, err
		}
		if _, err := d.take(id, volume, name); err != nil {
			return nil, err
		}
		g.Members = append(g.Members, id)
	}
	if err := os.MkdirAll(d.dir(groups, name), 0o750); err != nil {
		return nil, err
	}
	return g, d.keep(groups, name, g)
}

// group returns a group of snapshots in the form for responses.
func (d *Driver) group(g *item) (*csi.VolumeGroupSnapshot, error) {
	out := &csi.VolumeGroupSnapshot{GroupSnapshotId: g.Name, ReadyToUse: true,
		CreationTime: &timestamppb.Timestamp{Seconds: g.Made}}
	for _, id := range g.Members {
		i, err := d.find(snapshots, id)
		if err != nil {
			return nil, err
		}
		out.Snapshots = append(out.Snapshots, i.snapshot())
	}
	return out, nil
}

// GetVolumeGroupSnapshot implements csi.GroupControllerServer.
func (d *Driver) GetVolumeGroupSnapshot(_ context.Context, r *csi.GetVolumeGroupSnapshotRequest) (
	*csi.GetVolumeGroupSnapshotResponse, error) {
	if r.GetGroupSnapshotId() == "" {
		return nil, status.Error(codes.InvalidArgument, "group is required")
	}
	return locked(d, func() (*csi.GetVolumeGroupSnapshotResponse, error) {
		g, err := d.find(groups, r.GetGroupSnapshotId())
		if err != nil {
			return nil, err
		}
		out, err := d.group(g)
		if err != nil {
			return nil, err
		}
		return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: out}, nil
	})
}

// DeleteVolumeGroupSnapshot implements csi.GroupControllerServer.
func (d *Driver) DeleteVolumeGroupSnapshot(_ context.Context, r *csi.DeleteVolumeGroupSnapshotRequest) (
	*csi.DeleteVolumeGroupSnapshotResponse, error) {
	if r.GetGroupSnapshotId() == "" {
		return nil, status.Error(codes.InvalidArgument, "group is required")
	}
	return locked(d, func() (*csi.DeleteVolumeGroupSnapshotResponse, error) {
		g, err := d.find(groups, r.GetGroupSnapshotId())
		if status.Code(err) == codes.NotFound {
			return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
		}
		if err != nil {
			return nil, err
		}
		for _, id := range g.Members {
			if err := d.drop(snapshots, id); err != nil {
				return nil, err
			}
		}
		return &csi.DeleteVolumeGroupSnapshotResponse{}, d.drop(groups, g.Name)
	})
}
