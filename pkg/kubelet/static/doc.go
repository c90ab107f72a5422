// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package static runs static pods, which are described by files on the node or by an HTTP server. It
// shows them in the API as mirror pods.
//
// Static pods need no API server, so a control plane can run on the nodes that it manages. If a file
// changes, the new version of the pod starts after the old one has ended. Each static pod has a
// mirror pod. The Manager creates it again if a client deletes it, and deletes it after the file was
// removed. A static pod must not refer to API objects.
//
// A file in the directory that is not a valid pod is logged and does not affect other pods. If the
// directory, the only file or the URL cannot be read, the pods stay as they are.
//
// After a restart of the kubelet, pods of a source may be running before the kubelet has read the
// source. Synced reports whether all sources have been read. Until then, the kubelet ends no pod that
// it does not know, and the Manager deletes no mirror pod of such a pod.
package static
