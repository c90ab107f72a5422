// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import "net/http"

// readRoom and writeRoom are the stack sizes that most reads and writes need. A write of a pod
// needs a stack of more than 16 KiB, which is the size that readRoom results in. Watches get the
// smaller size because there may be many of them.
const readRoom, writeRoom = 8 << 10, 18 << 10

// withStack grows the stack of a request's goroutine once at the start. Otherwise it would grow
// four times while functions call each other, and would be copied each time, which costs one
// fifteenth of a small write.
func withStack(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			growForRead()
		} else {
			growForWrite()
		}
		next.ServeHTTP(w, r)
	})
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
