// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import "net/http"

// readRoom and writeRoom are the stack sizes, in bytes, that most reads and writes need. A
// goroutine whose stack grows by readRoom gets a stack of 16 KiB. A write of a pod needs more than
// that. Watches begin with readRoom; while they wait for events, the garbage collector halves their
// stacks.
const readRoom, writeRoom = 8 << 10, 18 << 10

// withStack grows the stack of a request's goroutine at the start. Otherwise the runtime would grow
// it four times during the request and copy it each time, which takes one fifteenth of the time of
// a small write.
func withStack(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			growForRead()
		} else {
			growForWrite()
		}
		next(w, r)
	}
}

//go:noinline
func growForRead() {
	var room [readRoom]byte
	touch(room[:])
}

//go:noinline
func growForWrite() {
	var room [writeRoom]byte
	touch(room[:])
}

//go:noinline
func touch(room []byte) { room[0]++ }
