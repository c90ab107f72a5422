// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package http2server serves HTTP/2 (RFC 9113) for an [http.Server]. API connections carry watches,
// which send many small pieces for hours. net/http passes each piece through three goroutines; here
// the handler's goroutine writes it. docs/decisions/0027-http2.md has the figures.
//
// [Configure] registers the server in http.Server.TLSNextProto. Handlers get what net/http gives
// them: a ResponseWriter that supports [http.ResponseController], trailers, 100-continue and full
// duplex. Limits come from the fields of the http.Server.
//
// How a connection works:
//   - One goroutine reads frames (read.go). It never writes to the network, so it always receives
//     window updates and resets. Each request has a goroutine that runs the handler.
//   - Frames to be sent are appended to conn.out (write.go), under conn.mu, which also guards the
//     flow-control windows. A frame uses its window when it is appended.
//   - At most one goroutine writes at a time: the first that flushes. Frames that other goroutines
//     append in the meantime are sent by the next write. So frames of many streams share a write, a TLS
//     record and a packet.
//   - An idle connection has one goroutine and no output buffer.
//
// Everything that a client can make the server keep is limited: data in conn.out by maxOut, other
// frames and headers there by maxControl, bodies by the receive windows, headers by MaxHeaderBytes,
// and running handlers by MaxConcurrentStreams, even if their streams have been reset.
//
// Slow clients: a client that reads none of the data written to it for WriteTimeout, or that keeps
// answers waiting for the connection's window for as long, loses the connection. A stream whose
// answer is not sent within WriteTimeout is reset, unless the handler changes its deadline.
//
// The package does not support server push, priorities, extended CONNECT, or HTTP/2 without TLS.
package http2server
