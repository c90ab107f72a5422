// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

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

// addSnapshots serves copies of the default database, if configured. One copy is made at a time,
// because the database cannot free space meanwhile.
func (a *assembly) addSnapshots(m *mux) {
	from, ok := a.databases.first().kv.(snapshotter)
	if !a.cfg.Etcd.Snapshots || !ok {
		return
	}
	var one sync.Mutex
	m.handle(storesnapshot.Path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "only GET is supported", http.StatusMethodNotAllowed)
			return
		}
		if !one.TryLock() {
			http.Error(w, "another snapshot is being read", http.StatusTooManyRequests)
			return
		}
		defer one.Unlock()
		w.Header().Set("Content-Type", "application/octet-stream")
		if err := from.Snapshot(r.Context(), w); err != nil {
			a.server.log.Error("Failed to send a snapshot of the store", "err", err)
			panic(http.ErrAbortHandler) // the client must not take what it has for the whole
		}
	}))
}
