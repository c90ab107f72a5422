// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package static runs pods described by files on the node or by an HTTP server, and shows them in
// the API as mirror pods.
//
// Static pods need no API server, so a control plane can run on the nodes that it manages. If a
// file changes, the new pod starts when the old pod of the same name has ended. Every static pod
// has a mirror. It is created again if a client deletes it, and deleted when the pod's file is
// removed. A static pod must not refer to API objects.
//
// A file that is not a valid pod is logged and does not affect the others. If the directory cannot
// be read, nothing changes.
package static
