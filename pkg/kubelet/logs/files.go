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
	timeFormat = "20060102-150405"
	compressed = ".gz"
	unfinished = ".tmp"
	// runtimeOwned is how many of the files permitted by MaxFiles are not renamed files: the file
	// that is being written, and the file that is renamed next.
	runtimeOwned = 2
)

// plan lists the renamed files of a log that must be removed or compressed before the log is
// renamed.
type plan struct {
	remove   []string
	compress []string
}

// decide returns the plan for the renamed files with these names. After the next rotation there are
// at most maximum files, including the one that is being written.
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
			// Remove the incomplete result of an interrupted compression, and an original that was
			// compressed but not yet removed.
			p.remove = append(p.remove, n)
		default:
			keep = append(keep, n)
		}
	}
	slices.Sort(keep) // oldest file first
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

// compress compresses a file in the log directory dir and removes the original. path is the full
// path of the file.
func compress(dir *os.Root, path string) (err error) {
	in, err := Open(path)
	if err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	defer func() { _ = in.Close() }()
	name := filepath.Base(path)
	temporary := name + unfinished
	out, err := dir.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.Remove(temporary))
		}
	}()
	z := gzip.NewWriter(out)
	_, err = io.Copy(z, in)
	if err = errors.Join(err, z.Close(), out.Close()); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	if err = dir.Rename(temporary, name+compressed); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	if err := dir.Remove(name); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	return nil
}
