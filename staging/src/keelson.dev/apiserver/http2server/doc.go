// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package http2server serves HTTP/2 (RFC 9113) for an [http.Server]. Connections to the API server
// carry watches, which send many small pieces of data for hours. net/http passes each piece through
// three goroutines; in this package the handler's goroutine writes it. docs/decisions/0027-http2.md
// has measurements.
//
// [Configure] registers the server in http.Server.TLSNextProto. Handlers get what net/http gives
// them: a ResponseWriter that supports [http.ResponseController], trailers, 100-continue and full
// duplex. Limits come from the fields of the http.Server.
//
// How a connection works:
//   - One goroutine reads frames (read.go). It never writes to the network, so it always receives
//     window updates and resets. Each request has a goroutine that runs the handler.
//   - Frames to be sent are appended to conn.out (write.go), under conn.mu, which also guards the
//     flow-control windows. A DATA frame counts against the windows when it is appended.
//   - At most one goroutine writes at a time: the first that flushes. Frames that other goroutines
//     append in the meantime are sent by the next write. So frames of many streams share a write, a
//     TLS record and a packet.
//   - An idle connection has one goroutine and no output buffer.
//
// The package limits all memory that a client can make the server use: data in conn.out by maxOut,
// other frames and headers there by maxControl, bodies by the receive windows, headers by
// MaxHeaderBytes, and running handlers by MaxConcurrentStreams, including handlers of streams that
// have been reset.
//
// The server closes the connection of a client that reads no data for WriteTimeout, or that grants
// no flow-control window for the connection for WriteTimeout while responses wait for it. It resets
// a stream whose response is not sent within WriteTimeout, unless the handler changes its deadline.
//
// The package does not support server push, priorities, extended CONNECT, or HTTP/2 without TLS.
package http2server
