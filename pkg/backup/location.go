// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"keelson.dev/keelson/pkg/backup/s3"
)

// Location is a place for backups: a directory, or a place in a bucket.
type Location interface {
	// Path returns how users name a file. OpenPath opens it again.
	Path(name string) string
	// List calls found for each file. Its error is fs.ErrNotExist for a directory that does not exist.
	List(ctx context.Context, found func(name string, size int64)) error
	// Open opens a file for reading. Its error is fs.ErrNotExist if there is no such file.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Create makes a file with what write writes, which is at least one byte. The file appears under its name
	// when it is complete and durable, and never before. If there is an error, there is no file, except that a
	// server may complete one later if its answers are lost. Create makes the directory, but no bucket.
	Create(ctx context.Context, name string, write func(io.Writer) error) error
	// Remove removes a file.
	Remove(ctx context.Context, name string) error
	// Clean removes what calls of Create that were interrupted before the given time have left of files with
	// a suffix.
	Clean(ctx context.Context, suffix string, before time.Time) error
}

var (
	_ Location = Directory("")
	_ Location = (*s3.Bucket)(nil)
)

// InBucket reports whether a path is one in a bucket.
func InBucket(path string) bool { return strings.HasPrefix(path, s3.Scheme) }

// At returns the location with a path, which is that of a directory or s3://BUCKET/PREFIX. The settings for
// buckets come from the environment (see s3.ReadConfig).
func At(path string) (Location, error) {
	if !InBucket(path) {
		return Directory(path), nil
	}
	c, err := s3.ReadConfig()
	if err != nil {
		return nil, err
	}
	return s3.New(path, c)
}

// OpenPath opens a file in a directory or in a bucket.
func OpenPath(ctx context.Context, path string) (io.ReadCloser, error) {
	dir, name := filepath.Dir(path), filepath.Base(path)
	if InBucket(path) {
		at := strings.LastIndex(path, "/")
		dir, name = path[:max(at, len(s3.Scheme))], path[at+1:]
	}
	l, err := At(dir)
	if err != nil {
		return nil, err
	}
	return l.Open(ctx, name)
}

// Listed is a backup in a location, as its name describes it.
type Listed struct {
	Path    string
	Cluster string
	// Node is the name of the node on which the backup was made. It is empty if the name of the file does not have
	// it: earlier versions made such names.
	Node string
	Time time.Time
	Size int64
	name string
}

// List returns the backups in a location, the newest first. It ignores files with other names.
func List(ctx context.Context, in Location) ([]Listed, error) {
	var out []Listed
	err := in.List(ctx, func(name string, size int64) {
		if l, ok := parseName(name); ok {
			l.Path, l.Size = in.Path(name), size
			out = append(out, l)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("backups: %w", err)
	}
	slices.SortFunc(out, func(x, y Listed) int { return y.Time.Compare(x.Time) })
	return out, nil
}

// parseName returns what the name of a backup says.
func parseName(name string) (l Listed, ok bool) {
	base, ok := strings.CutSuffix(name, Extension)
	at := strings.LastIndex(base, "-")
	if !ok || at < 1 {
		return l, false
	}
	t, err := time.Parse(timeLayout, base[at+1:])
	l = Listed{name: name, Cluster: base[:at], Time: t}
	if at = strings.LastIndex(l.Cluster, nodeMark); at > 0 {
		l.Cluster, l.Node = l.Cluster[:at], l.Cluster[at+len(nodeMark):]
	}
	return l, err == nil
}

// made returns the backups in a location that a node of a cluster has made until now, the newest first. A directory
// that does not exist has none. Others were made while the clock was wrong: each of them would be the newest backup
// for a long time.
func made(ctx context.Context, in Location, cluster, node string, now time.Time) ([]Listed, error) {
	all, err := List(ctx, in)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return slices.DeleteFunc(all, func(l Listed) bool {
		return l.Cluster != cluster || l.Node != node || l.Time.After(now)
	}), err
}

// Newest returns the newest backup in a location that a node of a cluster has made, except those with a time after
// now. ok is false if there is none, also if the directory does not exist.
func Newest(ctx context.Context, in Location, cluster, node string, now time.Time) (l Listed, ok bool, err error) {
	all, err := made(ctx, in, cluster, node, now)
	if err != nil || len(all) == 0 {
		return l, false, err
	}
	return all[0], true, nil
}

// partialAge is the age from which a backup that is not complete was interrupted.
const partialAge = 24 * time.Hour

// Prune removes all backups in a location that a node of a cluster has made, except the newest ones and those with
// a time after now, and returns the paths of those that it has removed. Those of other nodes, and those whose name
// has no node, stay. It also removes what interrupted backups of all nodes have left. Its error says what it could
// not remove.
func Prune(ctx context.Context, in Location, cluster, node string, keep int, now time.Time) ([]string, error) {
	all, err := made(ctx, in, cluster, node, now)
	if err != nil {
		return nil, err
	}
	var removed []string
	var errs []error
	for _, l := range all[min(keep, len(all)):] {
		if err := in.Remove(ctx, l.name); err != nil {
			errs = append(errs, fmt.Errorf("old backup: %w", err))
			continue
		}
		removed = append(removed, l.Path)
	}
	if err := in.Clean(ctx, Extension, now.Add(-partialAge)); err != nil {
		errs = append(errs, fmt.Errorf("interrupted backups: %w", err))
	}
	return removed, errors.Join(errs...)
}
