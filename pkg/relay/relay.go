// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package relay connects the streams of exec and attach to the next server of the stream protocol:
// from the API server to a kubelet, and from a kubelet to the container runtime.
//
// A relay is a client of the next server. Unlike a proxy, which copies bytes, it corrects two
// faults:
//
//   - Clients take a connection that ends without a result for success. [Target.Stream] returns an
//     error instead.
//   - The container runtime writes the result and closes its connection at once. If there is data
//     on the connection that the runtime has not read, the kernel resets the connection. This drops
//     output and result that the relay has not received yet. A relay to a target with Paced
//     therefore sends input only as fast as the command reads it and, except for keystrokes, not
//     while output waits to be read.
//
// A relay buffers at most 50 frames for each stream. A frame from a SPDY client has at most 256 KiB.
package relay

import (
	"context"
	"net/http"
	"net/url"

	constants "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"

	"keelson.dev/api/clock"
)

// Target is the next server. It serves version 4 of the stream protocol over SPDY.
type Target struct {
	URL *url.URL
	// Transport has the settings for connections to the server.
	Transport *http.Transport
	// Paced is true if the server may close its connection before it has read all data, as container
	// runtimes do. The connection must then be TCP without TLS.
	Paced bool
	Clock clock.Clock
	// BytesPerSecond limits the rate of each stream of [Target.ServeWebSocket]. 0 means no limit.
	BytesPerSecond int64
}

// Stream connects streams to those of the target. It returns when the command or the connection has
// ended, or when ctx is done. It returns nil only if the target has reported success. If the
// command has exited with a code other than 0, the error is an exec.CodeExitError of client-go.
func (t Target) Stream(ctx context.Context, streams remotecommand.StreamOptions) error {
	u := &upgrade{target: t}
	executor, err := remotecommand.NewSPDYExecutorForProtocols(u, u, http.MethodPost, t.URL,
		constants.StreamProtocolV4Name)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, streams)
}
