// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server is the kubelet's HTTPS API: container logs, exec, attach, port-forward, the node's
// pods, statistics and metrics, as Kubernetes has it on port 10250.
//
// Every request is authenticated (client certificate, or bearer token by TokenReview) and authorized
// (SubjectAccessReview for a subresource of this node, the verb by the HTTP method) before anything else.
// Exec, attach, port-forward and run always need create, whatever the method: a WebSocket is opened
// by a GET, and to be allowed to read a node must not be enough to run commands in its containers.
//
// Streams are not handled here: the runtime is asked for a URL of its streaming server, and the connection
// is handed over to it. Logs are read from the files that the runtime writes.
//
// There is no read-only port.
package server
