// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"maps"
	"regexp"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// ZoneKey is the label of nodes whose value is the node's zone.
const ZoneKey = "topology.test.csi.keelson.dev/zone"

// zone returns the zone in which a volume must be created, or "" if any zone is allowed.
func zone(r *csi.TopologyRequirement) string {
	for _, t := range append(r.GetPreferred(), r.GetRequisite()...) {
		if z := t.GetSegments()[ZoneKey]; z != "" {
			return z
		}
	}
	return ""
}

// reached returns the topology from which volumes of a zone are accessible.
func reached(zone string) []*csi.Topology {
	if zone == "" {
		return nil
	}
	return []*csi.Topology{{Segments: map[string]string{ZoneKey: zone}}}
}

// roomStep is the granularity of the reported capacity in bytes. Without rounding, the capacity
// would change all the time, because other programs write to the same disk.
const roomStep = 1 << 30

// GetCapacity implements csi.ControllerServer. It returns the same capacity for all zones, because
// they use the same disk.
func (d *Driver) GetCapacity(context.Context, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	return locked(d, func() (*csi.GetCapacityResponse, error) { // locked also creates the directory
		var fsys unix.Statfs_t
		if err := unix.Statfs(d.Root, &fsys); err != nil {
			return nil, err
		}
		free := int64(fsys.Bavail) * fsys.Bsize
		return &csi.GetCapacityResponse{AvailableCapacity: free - free%roomStep,
			MaximumVolumeSize: wrapperspb.Int64(maxSize)}, nil
	})
}

// attribute is the name of the modifiable attribute of volumes. The attribute has no effect.
const attribute = "iops"

var number = regexp.MustCompile(`^[0-9]{1,9}$`)

// change sets the modifiable attributes of a volume to the given values.
func (i *item) change(to map[string]string) error {
	for k, v := range to {
		if k != attribute || !number.MatchString(v) {
			return status.Errorf(codes.InvalidArgument, "volumes do not support %q=%q", k, v)
		}
	}
	if len(to) > 0 {
		i.Attributes = maps.Clone(to)
	}
	return nil
}

// ControllerModifyVolume implements csi.ControllerServer.
func (d *Driver) ControllerModifyVolume(_ context.Context, r *csi.ControllerModifyVolumeRequest) (
	*csi.ControllerModifyVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume is required")
	}
	return locked(d, func() (*csi.ControllerModifyVolumeResponse, error) {
		i, err := d.find(volumes, r.GetVolumeId())
		if err != nil {
			return nil, err
		}
		if err := i.change(r.GetMutableParameters()); err != nil {
			return nil, err
		}
		return &csi.ControllerModifyVolumeResponse{}, d.keep(volumes, i.Name, i)
	})
}
