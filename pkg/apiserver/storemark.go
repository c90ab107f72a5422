// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"keelson.dev/apiserver/store/kv"
)

// markRetry is the time between attempts to read the storeMark of a database.
const markRetry = time.Second

// storeMark is the value of a key in each database. It says which servers can read the database.
type storeMark struct {
	// MinCompatibilityVersion is the first release of Kubernetes whose servers can read everything
	// that is stored, for example "1.36". It never decreases.
	MinCompatibilityVersion string `json:"minCompatibilityVersion"`
}

// errUnreadable says that this server must not use a database.
var errUnreadable = errors.New("the database cannot be used")

// marker checks and writes the storeMark of databases.
type marker struct {
	key string // full key; no resource is stored there, and Kubernetes ignores it
	// own is the release of this server, and needed is the first release whose servers can read what
	// this server writes.
	own, needed *version.Version
}

// markStores checks that this server can read its databases, and marks them with the first release
// that can read what this server will write. It waits for databases that cannot be reached. If the
// mark of a newer server excludes this one, the error is errUnreadable, and nothing is written to that
// database and those after it.
func (d *databases) markStores(ctx context.Context, s *Server) error {
	info := s.cfg.Features.VersionInfo()
	m := marker{
		key:    path.Join("/", s.cfg.EtcdPrefix, "keelson.dev/store"),
		own:    version.MustParseGeneric(info.Major + "." + info.Minor),
		needed: version.MustParseGeneric(info.MinCompatibilityMajor + "." + info.MinCompatibilityMinor),
	}
	for _, db := range d.all {
		for {
			err := m.mark(ctx, db.kv)
			if err == nil {
				break
			}
			if errors.Is(err, errUnreadable) || ctx.Err() != nil {
				return err
			}
			s.log.Info("Failed to check the version of the database, retrying", "err", err)
			select {
			case <-ctx.Done():
			case <-s.deps.Clock.After(markRetry):
			}
		}
	}
	return nil
}

// mark checks the mark of db, and raises it to m.needed if it is lower.
func (m marker) mark(ctx context.Context, db kv.Store) error {
	value, err := json.Marshal(storeMark{MinCompatibilityVersion: m.needed.String()})
	if err != nil {
		return err
	}
	for {
		item, _, err := db.Get(ctx, m.key)
		if err != nil {
			return err
		}
		var revision int64
		if item != nil {
			if marked, err := m.check(item.Value); marked || err != nil {
				return err
			}
			revision = item.ModRevision
		}
		// Another server may start at the same time and write the mark first. Then the mark is read again.
		if result, err := db.Put(ctx, m.key, value, revision, 0); err != nil || result.OK {
			return err
		}
	}
}

// check reports whether a mark is at least m.needed. The error is errUnreadable if the mark excludes
// this server, or is not understood.
func (m marker) check(value []byte) (marked bool, err error) {
	var mark storeMark
	if err := json.Unmarshal(value, &mark); err != nil {
		return false, fmt.Errorf("%w: key %s: %w", errUnreadable, m.key, err)
	}
	first, err := version.ParseGeneric(mark.MinCompatibilityVersion)
	if err != nil {
		return false, fmt.Errorf("%w: key %s: %w", errUnreadable, m.key, err)
	}
	if m.own.LessThan(first) {
		return false, fmt.Errorf("%w: it was written by a newer version; only servers of Kubernetes %s or later can "+
			"read it, and this server has version %s", errUnreadable, first, m.own)
	}
	return !first.LessThan(m.needed), nil
}
