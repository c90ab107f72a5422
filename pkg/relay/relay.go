// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package relay carries the streams of exec and attach from one server of the stream protocol to
// the next: from the API server to a kubelet, and from a kubelet to the container runtime.
//
// A relay is a client of the next server, and not a proxy of bytes. It corrects two faults that a
// proxy passes on:
//
//   - Clients take a connection that ends without a result for success. [Target.Stream] returns an
//     error.
//   - The container runtime writes the result and closes its connection at once. If the connection
//     has data that the runtime has not read, the kernel resets it, and drops the output and the
//     result that the client has not received yet. A relay that is paced therefore sends input
//     only as fast as the command reads it, and not while output waits to be read.
//
// A relay buffers at most 50 frames for each stream, of up to 256 KB from clients.
package relay

import (
	"context"
	"net/http"
	"net/url"

	constants "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"

	"keelson.dev/api/clock"
)

// Target is a server of version 4 of the stream protocol over SPDY.
type Target struct {
	URL *url.URL
	// Transport dials the server.
	Transport *http.Transport
	// Paced is set if the server closes its connection while it may have unread data, as container
	// runtimes do. The connection must then be TCP.
	Paced bool
	Clock clock.Clock
	// BytesPerSecond limits each stream of [Target.ServeWebSocket]. 0 means no limit.
	BytesPerSecond int64
}

// Stream connects the given streams to those of the target and returns when the command has ended,
// the connection has ended, or ctx has ended. It returns nil only if the target has reported
// success. The error for an exit code other than 0 is an exec.CodeExitError of client-go.
func (t Target) Stream(ctx context.Context, streams remotecommand.StreamOptions) error {
	u := &upgrade{target: t}
	executor, err := remotecommand.NewSPDYExecutorForProtocols(u, u, http.MethodPost, t.URL,
		constants.StreamProtocolV4Name)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, streams)
}
