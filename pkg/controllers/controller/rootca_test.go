// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"keelson.dev/api/clock"
)

// TestFollowRootCA checks that a controller learns of changed certificates, and only of these, and that
// options without a file have the certificates of the start.
func TestFollowRootCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content := "one"
		d := &Deps{Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Options: Options{RootCA: []byte("start")}}
		if got := string(d.Options.RootCertificates()); got != "start" {
			t.Errorf("without a file: %q", got)
		}
		d.Options.ReadRootCA = func() []byte { return []byte(content) }
		var seen []string
		queue := NewQueue("test", d.Clock, d.Log, 1, func(_ context.Context, key string) error {
			seen = append(seen, key)
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- d.FollowRootCA(ctx, queue, func() { queue.Add(string(d.Options.RootCertificates())) })
		}()
		for _, next := range []string{"one", "two", "two", "three"} {
			synctest.Wait()
			content = next
			<-d.Clock.After(rootCAInterval * 3 / 2)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := []string{"two", "three"}; !slices.Equal(seen, want) {
			t.Errorf("changes to %q, want %q", seen, want)
		}
	})
}
