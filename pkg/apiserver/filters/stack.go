// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import "net/http"

// readRoom and writeRoom are how much stack most requests need: a write of a pod more
// than the 16 KB that the first leads to. Watches read, and there may be many.
const readRoom, writeRoom = 8 << 10, 18 << 10

// withStack makes the stack of a request's goroutine as large at once as it will
// become. It would grow four times on the way down else, and be copied each time
// with more frames on it: a fifteenth of the work of a small write.
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
