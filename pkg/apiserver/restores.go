// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/epoch"
	"keelson.dev/keelson/pkg/storesnapshot"
)

// This file has what backups and restores of a cluster need from the API server: snapshots of the
// default database, and the cluster's epoch.

// readEpoch reads the cluster's epoch. It does not change while servers run.
func (d *databases) readEpoch(ctx context.Context, prefix string) (int64, error) {
	item, _, err := d.first().kv.Get(ctx, epoch.Key(prefix))
	if err != nil {
		return 0, fmt.Errorf("epoch: %w", err)
	}
	if item == nil {
		return 0, nil
	}
	return epoch.Parse(string(item.Value))
}

// withEpoch adds the cluster's epoch to answers to /readyz, also to those that reject the request. A
// cluster that was never restored answers as Kubernetes does.
func withEpoch(next http.Handler, number int64) http.Handler {
	if number == 0 {
		return next
	}
	text := epoch.Format(number)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.Header().Set(epoch.Header, text)
		}
		next.ServeHTTP(w, r)
	})
}

// snapshotter is a database that can be copied while it is in use.
type snapshotter interface {
	// Snapshot writes the copy to w.
	Snapshot(ctx context.Context, w io.Writer) error
}

const (
	// snapshotTimeout limits the time of a snapshot, and snapshotWriteTimeout the time in which the client
	// must accept each part. Meanwhile the database keeps the pages of objects that are deleted.
	snapshotTimeout, snapshotWriteTimeout = 30 * time.Minute, 30 * time.Second
)

// addSnapshots serves copies of the default database, if configured. One copy is made at a time, because
// the database cannot free space meanwhile. A member of etcd that is defragmented waits for the end of all
// copies, and answers no requests until then, so this server does not do both at once.
func (a *assembly) addSnapshots(m *mux) {
	from, ok := a.databases.first().kv.(snapshotter)
	if !a.cfg.Etcd.Snapshots || !ok {
		return
	}
	one := new(sync.Mutex)
	if k := a.databases.first().keeper; k != nil {
		one = &k.Steady
	}
	m.handle(storesnapshot.Path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "only GET is supported", http.StatusMethodNotAllowed)
			return
		}
		if !one.TryLock() {
			http.Error(w, "the store is being copied or defragmented", http.StatusTooManyRequests)
			return
		}
		defer one.Unlock()
		w.Header().Set("Content-Type", "application/octet-stream")
		ctx, cancel := context.WithTimeout(r.Context(), snapshotTimeout)
		defer cancel()
		if err := from.Snapshot(ctx, &steadyWriter{w, snapshotWriteTimeout}); err != nil {
			a.server.log.Error("Failed to send a snapshot of the store", "err", err)
			panic(http.ErrAbortHandler) // the client must not take what it has for the whole
		}
	}))
}

// steadyWriter writes an answer, and fails if the client does not accept each part in a limited time.
type steadyWriter struct {
	to    http.ResponseWriter
	limit time.Duration
}

// Write implements io.Writer.
func (w *steadyWriter) Write(p []byte) (int, error) {
	control := http.NewResponseController(w.to)
	// The network compares deadlines with the machine's clock.
	if err := control.SetWriteDeadline(clock.Real().Now().Add(w.limit)); err != nil {
		return 0, err
	}
	n, err := w.to.Write(p)
	// With HTTP/2, the deadline would end the answer also while nothing is written.
	return n, errors.Join(err, control.SetWriteDeadline(time.Time{}))
}
