// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package http2server serves HTTP/2 (RFC 9113) for an [http.Server]. It exists because API
// connections carry watches: many small answers that last for hours. Go's own server passes each
// piece of an answer through three goroutines; here the handler writes it. docs/decisions/0027-http2.md
// has the figures.
//
// [Configure] registers the server in http.Server.TLSNextProto. Handlers see what they see with
// net/http: a ResponseWriter that supports [http.ResponseController], trailers, 100-continue and
// full duplex. Limits come from the fields of the http.Server.
//
// How a connection works:
//   - One goroutine reads frames (read.go). It never writes to the network, so that it always
//     notices window updates and resets. Each request has a goroutine that runs the handler.
//   - Frames to be sent are appended to conn.out (write.go), under conn.mu, which also guards the
//     flow-control windows. A frame takes its window when it is appended.
//   - At most one goroutine at a time writes: the first that flushes. The frames that other
//     goroutines append meanwhile go with the next write. So frames of many streams share a
//     write, a TLS record and a packet.
//   - An idle connection has one goroutine and no output buffer.
//
// Everything a client can make the server keep is bounded: conn.out by maxOut for data and by
// maxControl for other frames and headers, bodies by the receive windows, headers by MaxHeaderBytes, handlers
// by MaxConcurrentStreams even if their streams have been reset.
//
// Slow clients: a client that takes none of the data written to it for WriteTimeout, or that
// keeps answers waiting for the connection's window for as long, loses the connection. An answer
// that is not sent within WriteTimeout is reset, unless the handler changes its deadline.
//
// The package does not support server push, priorities, extended CONNECT, or HTTP/2 without TLS.
package http2server
