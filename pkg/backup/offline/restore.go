// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"

	"keelson.dev/keelson/pkg/epoch"
)

const (
	// perEpoch is the number of revisions of each epoch. Epochs are times in seconds, and no store issues a
	// million revisions a second.
	perEpoch = 1_000_000
	// firstTime is the lowest epoch that is a time. A machine whose clock is not set uses lower ones.
	firstTime = 1_000_000_000
	// minBump is how many revisions such a machine adds: more than etcd issues in a week.
	minBump = 1_000_000_000
)

// The only member of the restored store, unless the options name it. The API server's own etcd has the same name
// and URL.
const (
	member = "keelson"
	peer   = "http://localhost:0"
)

// Options describe a restore.
type Options struct {
	// Prefix is the prefix of all keys, for example registry.
	Prefix string
	// Epoch is the epoch of the restored store (see epoch.Next).
	Epoch int64
	// Name and Peer are the name of the only member and its URL for other members, if there can be others.
	Name, Peer string
}

// Restore makes the data directory dir from the snapshot of a store, and returns the revision of the
// restored store. dir must not exist. Its parent needs space for two copies of the snapshot.
func Restore(ctx context.Context, source, dir string, o Options) (revision int64, err error) {
	work := dir + ".source"
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := errors.Join(os.RemoveAll(work), os.Mkdir(work, 0o700)); err != nil {
		return 0, fmt.Errorf("restore: %w", err)
	}
	db := filepath.Join(work, "db")
	if err := copyDatabase(source, db); err != nil {
		return 0, err
	}
	if err := putEpoch(ctx, db, epoch.Key(o.Prefix), epoch.Format(o.Epoch)); err != nil {
		return 0, err
	}
	last, err := lastRevision(db)
	if err != nil {
		return 0, err
	}
	revision = nextRevision(last, o.Epoch)
	name, url := cmp.Or(o.Name, member), cmp.Or(o.Peer, peer)
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: db, SkipHashCheck: true, OutputDataDir: dir,
		Name: name, PeerURLs: []string{url}, InitialCluster: name + "=" + url,
		// etcd computes the cluster's ID from the token.
		InitialClusterToken: fmt.Sprintf("keelson-%d-%s", o.Epoch, rand.Text()),
		RevisionBump:        uint64(revision - last), MarkCompacted: true,
	})
	if err != nil {
		return 0, fmt.Errorf("restore the store: %w", err)
	}
	return revision, syncAll(dir)
}

// nextRevision returns the revision of a store that is restored with the given epoch, and whose last
// revision is known. It follows from the epoch, because a store can be restored twice from one file: then
// the second history must not use the revisions of the first one, which are not in the file.
func nextRevision(last, number int64) int64 {
	next := number * perEpoch
	if number < firstTime || next <= last {
		next = max(next, last+minBump)
	}
	return next
}

// copyDatabase copies a snapshot without the hash at its end.
func copyDatabase(source, to string) (err error) {
	in, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	const page = 512 // the size of a database is a multiple of it
	if _, err := io.CopyN(out, in, info.Size()-info.Size()%page); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// putEpoch writes a key to a database.
func putEpoch(ctx context.Context, db, key, value string) error {
	log := zap.NewNop()
	b := backend.NewDefaultBackend(log, db)
	s := mvcc.NewStore(log, b, &lease.FakeLessor{}, mvcc.StoreConfig{})
	w := s.Write(traceutil.Get(ctx))
	w.Put([]byte(key), []byte(value), lease.NoLease)
	w.End()
	s.Commit()
	if err := errors.Join(s.Close(), b.Close()); err != nil {
		return fmt.Errorf("epoch: %w", err)
	}
	return nil
}

var errNoStore = errors.New("the snapshot has no revision: it is not that of a store")

// lastRevision returns the highest revision in a database.
func lastRevision(path string) (last int64, err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte("key"))
		if bucket == nil {
			return errNoStore
		}
		key, _ := bucket.Cursor().Last()
		if len(key) < 8 {
			return errNoStore
		}
		last = int64(binary.BigEndian.Uint64(key))
		return nil
	})
	return last, err
}

// syncAll makes sure that a directory with all files in it is on the disk.
func syncAll(dir string) error {
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
