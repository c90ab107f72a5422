// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"keelson.dev/api/storage/v1alpha1"
)

// proxied calls a driver by a request to the API server, which forwards it to the kubelet of a
// node, where the driver runs. All its errors have gRPC codes: the driver's code, or Unavailable if
// the driver could not be reached.
type proxied struct{ client rest.Interface }

// call calls a gRPC method of a driver on a node. The argument in is the request, and the response
// is decoded into the argument out.
func (p proxied) call(ctx context.Context, node, driver, method string, in, out protoadapt.MessageV1) error {
	body, err := proto.Marshal(protoadapt.MessageV2Of(in))
	if err != nil {
		return status.Errorf(codes.Internal, "request: %v", err)
	}
	var code int
	answer, err := p.client.Post().AbsPath(v1alpha1.NodesPath, node, v1alpha1.DriversSubresource, driver,
		method).Body(body).Do(ctx).StatusCode(&code).Raw()
	if err != nil {
		var refused struct {
			Code    codes.Code `json:"code"`
			Message string     `json:"message"`
		}
		if code == http.StatusFailedDependency && json.Unmarshal(answer, &refused) == nil {
			return status.Error(refused.Code, refused.Message)
		}
		return status.Errorf(codes.Unavailable, "kubelet of %s: %v", node, err)
	}
	if err := proto.Unmarshal(answer, protoadapt.MessageV2Of(out)); err != nil {
		return status.Errorf(codes.Internal, "answer: %v", err)
	}
	return nil
}

const controllerService = "csi.v1.Controller/"

// callController calls a method of the driver's CSI Controller service on a node.
func (c *Controller) callController(ctx context.Context, node, driver, method string, in,
	out protoadapt.MessageV1) error {
	return c.drivers.call(ctx, node, driver, controllerService+method, in, out)
}

// abilities are the capabilities that a driver's Controller service reports.
type abilities map[csi.ControllerServiceCapability_RPC_Type]bool

func (c *Controller) abilities(ctx context.Context, node, driver string) (abilities, error) {
	got := &csi.ControllerGetCapabilitiesResponse{}
	if err := c.callController(ctx, node, driver, "ControllerGetCapabilities",
		&csi.ControllerGetCapabilitiesRequest{}, got); err != nil {
		return nil, fmt.Errorf("capabilities: %w", err)
	}
	out := abilities{}
	for _, a := range got.GetCapabilities() {
		out[a.GetRpc().GetType()] = true
	}
	return out, nil
}

// selectNode returns a ready node on which the driver is registered, to call the driver there: the
// node with the name wanted if this name is not "", otherwise the first one by name. If the
// function may is not nil, only nodes for which it returns true are considered.
func (c *Controller) selectNode(driver, wanted string, may func(*v1.Node) bool) (*v1.Node, error) {
	all, err := c.csiNodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("nodes of driver %s: %w", driver, err)
	}
	var best *v1.Node
	for _, n := range all {
		if wanted != "" && n.Name != wanted || registered(n, driver) == nil {
			continue
		}
		node, err := c.nodes.Get(n.Name)
		if err != nil || may != nil && !may(node) || !ready(node) {
			continue // the node was deleted, is not ready, or is excluded by the caller
		}
		if best == nil || strings.Compare(node.Name, best.Name) < 0 {
			best = node
		}
	}
	if best == nil {
		return nil, status.Errorf(codes.Unavailable, "driver %s is on no node that could be asked", driver)
	}
	return best, nil
}

func ready(n *v1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions,
		func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue })
}

// capability converts a volume's mode, access modes, file system type and mount options to a CSI
// capability. precise means that the driver has the capability SINGLE_NODE_MULTI_WRITER: it
// distinguishes a single writer from several writers on one node.
func capability(mode *v1.PersistentVolumeMode, access []v1.PersistentVolumeAccessMode, fsType string,
	options []string, precise bool) *csi.VolumeCapability {
	out := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	switch {
	case slices.Contains(access, v1.ReadWriteMany):
		out.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case slices.Contains(access, v1.ReadOnlyMany) && !slices.Contains(access, v1.ReadWriteOnce):
		out.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case slices.Contains(access, v1.ReadWriteOncePod) && precise:
		out.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case precise:
		out.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	}
	if mode != nil && *mode == v1.PersistentVolumeBlock {
		out.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		out.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType,
			MountFlags: options}}
	}
	return out
}

// capabilityOf returns the CSI capability of an existing volume.
func capabilityOf(v *v1.PersistentVolume, precise bool) *csi.VolumeCapability {
	return capability(v.Spec.VolumeMode, v.Spec.AccessModes, v.Spec.CSI.FSType, v.Spec.MountOptions, precise)
}
