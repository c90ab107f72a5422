// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	timeFormat   = "20060102-150405"
	compressed   = ".gz"
	unfinished   = ".tmp"
	runtimeOwned = 2 // of the files allowed: the one being written, and the one about to be renamed
)

// plan is what to do with the renamed files of a log before it is renamed itself.
type plan struct {
	remove   []string
	compress []string
}

// decide plans for renamed files, given by their names, so that at most maximum
// files are there after the next renaming.
func decide(names []string, maximum int) plan {
	var p plan
	whole := map[string]bool{}
	for _, n := range names {
		whole[n] = true
	}
	var keep []string
	for _, n := range names {
		switch {
		case strings.HasSuffix(n, unfinished), whole[n+compressed]:
			p.remove = append(p.remove, n) // a compression that did not end, or the original of one that did
		default:
			keep = append(keep, n)
		}
	}
	slices.Sort(keep) // as they were written
	if over := len(keep) - max(maximum-runtimeOwned, 0); over > 0 {
		p.remove = append(p.remove, keep[:over]...)
		keep = keep[over:]
	}
	for _, n := range keep {
		if !strings.HasSuffix(n, compressed) {
			p.compress = append(p.compress, n)
		}
	}
	return p
}

// renamed returns the renamed files of a log.
func renamed(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(path)+".") && !e.IsDir() {
			out = append(out, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return out, nil
}

// compress replaces a file by its compressed form.
func compress(path string) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	defer func() { _ = in.Close() }()
	temporary := path + unfinished
	out, err := os.OpenFile(temporary, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o640)
	if err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temporary))
		}
	}()
	z := gzip.NewWriter(out)
	_, err = io.Copy(z, in)
	if err = errors.Join(err, z.Close(), out.Close()); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	if err = os.Rename(temporary, path+compressed); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	return nil
}
