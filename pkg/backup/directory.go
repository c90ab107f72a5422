// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Listed is a backup in a directory, as its name describes it.
type Listed struct {
	Path    string
	Cluster string
	Time    time.Time
	Size    int64
}

// List returns the backups in a directory, the newest first. It ignores files with other names.
func List(dir string) ([]Listed, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("backups: %w", err)
	}
	var out []Listed
	for _, e := range entries {
		l, ok := parseName(e.Name())
		info, err := e.Info()
		if !ok || err != nil || !info.Mode().IsRegular() { // it may have been removed meanwhile
			continue
		}
		l.Path, l.Size = filepath.Join(dir, e.Name()), info.Size()
		out = append(out, l)
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
	return Listed{Cluster: base[:at], Time: t}, err == nil
}

// made returns the backups of a cluster in a directory that were made until now, the newest first. Others were
// made while the clock was wrong: each of them would be the newest backup for a long time.
func made(dir, cluster string, now time.Time) ([]Listed, error) {
	all, err := List(dir)
	return slices.DeleteFunc(all, func(l Listed) bool { return l.Cluster != cluster || l.Time.After(now) }), err
}

// Newest returns the newest backup of a cluster in a directory, except those with a time after now. ok is
// false if there is none, also if the directory does not exist.
func Newest(dir, cluster string, now time.Time) (l Listed, ok bool, err error) {
	all, err := made(dir, cluster, now)
	if errors.Is(err, os.ErrNotExist) {
		return l, false, nil
	}
	if err != nil || len(all) == 0 {
		return l, false, err
	}
	return all[0], true, nil
}

// partialAge is the age from which a backup that is not complete was interrupted.
const partialAge = 24 * time.Hour

// Prune removes all backups of a cluster in a directory except the newest ones and those with a time after now,
// and returns the paths of those that it has removed. It also removes what interrupted backups have left.
func Prune(dir, cluster string, keep int, now time.Time) ([]string, error) {
	all, err := made(dir, cluster, now)
	if err != nil {
		return nil, err
	}
	var removed []string
	for _, l := range all[min(keep, len(all)):] {
		if err := os.Remove(l.Path); err != nil {
			return removed, fmt.Errorf("old backup: %w", err)
		}
		removed = append(removed, l.Path)
	}
	partial, err := filepath.Glob(filepath.Join(dir, ".partial-*"+Extension))
	for _, path := range partial {
		if info, statErr := os.Stat(path); statErr == nil && now.Sub(info.ModTime()) > partialAge {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return removed, err
}
