// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package static runs the pods that files on the node, or a server that is asked by HTTP, describe, and shows them
// in the API by mirrors.
//
// Static pods need no API server: they are how a control plane can run on the
// nodes that it manages. A file that changes makes another pod of the same name,
// which starts when the one before has ended. A mirror is made for every pod,
// made again when somebody deletes it, and deleted with the file; it does nothing
// by itself. A static pod must not refer to objects of the API.
//
// A file that cannot be read as a pod is told of in the log and leaves the others
// alone; a directory that cannot be read changes nothing.
package static
