// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the paths of storage.keelson.dev/v1alpha1.
//
// The group has no kinds. It serves calls of the storage drivers on a node, which
// the API server passes on to the node's kubelet:
//
//	POST /apis/storage.keelson.dev/v1alpha1/nodes/{node}/csi/{driver}/{service}/{method}
//
// Body and answer are the messages of the Container Storage Interface in protobuf.
// The services are csi.v1.Identity and csi.v1.Controller. If the driver refuses,
// the answer is 424 with the code and the message of gRPC. A client needs the verb
// create on nodes/csi of the group.
package v1alpha1

const (
	// Group and Version are those of the paths here.
	Group   = "storage.keelson.dev"
	Version = "v1alpha1"
	// NodesPath is what the paths of all nodes begin with.
	NodesPath = "/apis/" + Group + "/" + Version + "/nodes/"
	// DriversSubresource follows the name of the node.
	DriversSubresource = "csi"
)
