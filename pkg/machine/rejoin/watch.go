// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rejoin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/epoch"
)

// Watch notices that the store of this machine has the history before a restore.
type Watch struct {
	// Server returns HOST:PORT of this machine's API server, or "" if it has none.
	Server func() string
	// Store is the file with the epoch of this machine's own store.
	Store   epoch.File
	Journal Journal
	// Exclusively calls a function while nothing else that stops or restarts programs of this machine has begun, or
	// can begin. Otherwise it returns an error.
	Exclusively func(func() error) error
	// Start makes systemd start the program that calls Run, and does not wait for it.
	Start func(ctx context.Context) error
	Clock clock.Clock
	Log   *slog.Logger

	next time.Time // when Start may be called again for the same journal
}

// startPause is the time between two calls of Start for one journal. systemd restarts the program by itself; the
// repetition is for a machine that has booted, and for a program that an operator has stopped.
const startPause = 30 * time.Second

// Seen takes the epochs that API servers have shown, and the highest one that a server of the cluster has
// ever shown to this machine, or 0 if no server with that one is ready: then there is nothing to join. If the
// store of this machine has a lower one, its control plane begins to join the restored cluster.
func (w *Watch) Seen(ctx context.Context, shown map[string]int64, highest int64) error {
	e, err := w.Journal.Load()
	if err != nil {
		return err
	}
	if e == nil {
		if e, err = w.begin(shown, highest); e == nil || err != nil {
			return err
		}
		if err := w.Exclusively(func() error { return w.Journal.Save(e) }); err != nil {
			return err
		}
		w.Log.Warn("The cluster was restored elsewhere: the control plane of this machine joins it",
			"epoch", highest)
		w.next = time.Time{}
	}
	now := w.Clock.Now()
	if now.Before(w.next) {
		return nil
	}
	w.next = now.Add(startPause)
	if err := w.Start(ctx); err != nil {
		return fmt.Errorf("join the restored cluster: %w", err)
	}
	return nil
}

// begin returns the first entry of the journal, or nil if the control plane need not join another cluster.
func (w *Watch) begin(shown map[string]int64, highest int64) (*Entry, error) {
	server := w.Server()
	if server == "" {
		return nil, nil
	}
	own, known := w.Store.Read()
	// An API server with an older store than the machine has had does not count: an administrator has given
	// it that.
	if now, ok := shown[server]; ok && (!known || now > own) {
		own, known = now, true
		if err := w.Store.Write(own); err != nil {
			return nil, err
		}
	}
	if !known || own >= highest {
		return nil, nil
	}
	return &Entry{Epoch: highest, Step: Stop}, nil
}
