// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server is the kubelet's HTTPS API on port 10250: container logs, exec, attach,
// port-forward, the node's pods, statistics and metrics, as in Kubernetes.
//
// Every request is first authenticated by a client certificate, or by a bearer token, which is
// checked by a TokenReview. It is then authorized by a SubjectAccessReview for a subresource of
// this node. The verb follows from the HTTP method, but exec, attach, port-forward and run always
// require create: a WebSocket starts with a GET, and a user who may only read a node must not be
// able to run commands in its containers.
//
// For exec, attach and port-forward, the runtime returns a URL of its streaming server. The kubelet
// relays the streams of exec and attach to that URL, and proxies the connection of port-forward.
// Logs are read from the files that the runtime writes.
//
// Unlike Kubernetes' kubelet, this one has no read-only port.
package server
