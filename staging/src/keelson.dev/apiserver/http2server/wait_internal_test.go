// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
)

// TestManyWaiters checks that all goroutines that wait to send on one stream continue when the
// client enlarges the window, and when the stream ends.
func TestManyWaiters(t *testing.T) {
	const waiters = 3
	for name, wake := range map[string]func(f *http2.Framer) error{
		"window": func(f *http2.Framer) error { return f.WriteWindowUpdate(1, waiters) },
		"reset":  func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeCancel) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				errs := make(chan error, waiters)
				c, end, f := client(func(*server) {}, func(w http.ResponseWriter, _ *http.Request) {
					st := w.(*response).stream
					var all sync.WaitGroup
					for range waiters {
						all.Go(func() {
							st.conn.mu.Lock()
							defer st.conn.mu.Unlock()
							errs <- st.conn.sendLocked(st, []byte("x"), false)
						})
					}
					all.Wait()
				})
				defer end.Close()
				go func() {
					for {
						if _, err := f.ReadFrame(); err != nil {
							return
						}
					}
				}()
				c.mu.Lock()
				c.initial = 0
				c.mu.Unlock()
				get(f, 1)
				synctest.Wait()
				if len(errs) > 0 {
					t.Fatal("data was sent without window")
				}
				if err := wake(f); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if len(errs) != waiters {
					t.Fatalf("%d of %d goroutines went on", len(errs), waiters)
				}
				for range waiters {
					if err := <-errs; (err == nil) != (name == "window") {
						t.Errorf("send: %v", err)
					}
				}
			})
		})
	}
}
