// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 defines the paths of storage.keelson.dev/v1alpha1.
//
// The group has no kinds. It serves calls of the storage drivers on a node, which
// the API server forwards to the node's kubelet:
//
//	POST /apis/storage.keelson.dev/v1alpha1/nodes/{node}/csi/{driver}/{service}/{method}
//
// Request and response bodies are messages of the Container Storage Interface in protobuf.
// The services are csi.v1.Identity and csi.v1.Controller. If the driver returns an error,
// the response is 424 with the gRPC code and message. A client needs the verb
// create on nodes/csi of the group.
package v1alpha1

const (
	// Group and Version are the group and version of the paths.
	Group   = "storage.keelson.dev"
	Version = "v1alpha1"
	// NodesPath is the prefix of the paths of all nodes.
	NodesPath = "/apis/" + Group + "/" + Version + "/nodes/"
	// DriversSubresource is the path element that follows the node's name.
	DriversSubresource = "csi"
)
