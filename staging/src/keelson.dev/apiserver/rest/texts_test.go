// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"keelson.dev/api/clock"
)

func TestTextsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // virtual time does not advance while a goroutine works
		texts := newTexts(clock.Real())
		var running, most atomic.Int32
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				_ = texts.use(func(buf []byte) ([]byte, error) {
					n := running.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					buf = append(buf, make([]byte, 64<<10)...)
					running.Add(-1)
					return buf, nil
				})
			})
		}
		all.Wait()
		require.LessOrEqual(t, int(most.Load()), cap(texts.turns))
		require.Empty(t, texts.turns, "every turn has ended")
	})
}

// TestTextsDoNotWaitForSlowClients checks that clients that read nothing keep their buffers, and
// delay other clients by at most turnTime.
func TestTextsDoNotWaitForSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		texts := newTexts(clock.Real())
		stuck := make(chan struct{})
		for range cap(texts.turns) {
			go func() {
				_ = texts.use(func(buf []byte) ([]byte, error) { <-stuck; return buf, nil })
			}()
		}
		synctest.Wait()
		begun := time.Now()
		for range 100 {
			require.NoError(t, texts.use(func(buf []byte) ([]byte, error) {
				require.Empty(t, buf)
				return append(buf, 'x'), nil
			}))
		}
		require.Equal(t, turnTime, time.Since(begun))
		close(stuck)
		synctest.Wait()
		require.Empty(t, texts.turns, "every turn has ended")
	})
}

func TestTextsKeepNoLargeBuffer(t *testing.T) {
	texts := newTexts(clock.Real())
	for range 10 {
		require.NoError(t, texts.use(func(buf []byte) ([]byte, error) {
			require.Less(t, cap(buf), 5<<20)
			return make([]byte, 5<<20), nil
		}))
	}
}
