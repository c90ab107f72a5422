// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package streams sends answers of HTTP/2 past the HTTP server, once it has sent
// their headers. An answer that goes on for hours in small pieces, to many clients at
// once, costs Go's server three goroutines that wake each other for every piece, and
// two more for each window update that comes back. Here whoever has a piece sends it
// by one call, and window updates end where they are read. The body of a large answer, sent by
// the same call, costs half of what it costs by way of that server.
//
// A Conn stands between the server and TLS, a Socket between TLS and the kernel:
//
//	server ─ Conn ─ *tls.Conn ─ Socket ─ net.Conn
//
// The Conn lets the frames of both sides pass. Of what the server writes it knows where frames
// begin, so that it can put its own between them; of what the client writes it takes out the window
// updates that are its own. A client that grants anew for each piece that it is sent is not read each time: what
// it answers is left in the kernel until there is more of it, or something else.
//
// Invariants:
//   - What the client has granted is spent once. The window of a stream is the Conn's alone from
//     when it is taken. That of the connection is shared: what the Conn has spent is left
//     out of what the server is told of the client's next grants, and until then the server, which
//     believes that there is more, waits in its writes when there is not. A connection whose client
//     grants little is left to the server.
//   - A stream that was taken is sent frames by its Conn until it is released, and nothing but
//     its end by the server after that.
//   - TrySend waits for nobody, whatever the client does: neither for its window, nor for the
//     kernel, nor for others who write. Writes through a Socket under a Conn never
//     wait; who may wait does so in the Conn, before and after.
//   - A client that reads none of the data sent to it within the server's WriteTimeout is cut off.
//     If it grants no window to a stream that was taken, the stream ends. If it grants no window to
//     the connection, or reads nothing from it, the connection is closed.
//   - What a client asks for is noticed at once if it has answered all that it was sent, soon if it has not, and
//     whatever it has sent is read after a second.
//
// The package knows nothing of what is sent. It does not end streams, and it is of no use to HTTP/1.
package streams
