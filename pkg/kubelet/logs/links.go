// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	linkSuffix = ".log"
	// maxName is the maximum length of a link's name in bytes. File systems accept a few more.
	maxName = 251
)

// Link creates the link by which log collectors find a container's log:
// POD_NAMESPACE_CONTAINER-ID.log in dir. If that name is too long, only the pod's name in it is
// shortened. The ID stays complete, so that each run of a container has its own link.
func Link(dir, namespace, pod, container, id, path string) error {
	rest := fmt.Sprintf("_%s_%s-%s%s", namespace, container, id, linkSuffix)
	name := pod[:min(len(pod), max(maxName-len(rest), 0))] + rest
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("directory of links: %w", err)
	}
	err := os.Symlink(path, filepath.Join(dir, name))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link to log: %w", err)
	}
	return nil
}

// sweepLinks removes links whose log no longer exists. It keeps a link if renamed files of the log
// exist, because then the log is just being rotated.
func sweepLinks(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	var errs []error
	for _, e := range entries {
		link := filepath.Join(dir, e.Name())
		to, err := os.Readlink(link)
		if err != nil {
			continue // not a link, so the kubelet has not created it
		}
		if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if names, err := renamed(to); err == nil && len(names) > 0 {
			continue
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove link: %w", err))
		}
	}
	return errors.Join(errs...)
}
