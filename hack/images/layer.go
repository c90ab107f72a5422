// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
)

// layer has the files of one image layer, in any order.
type layer []entry

// entry is one file of a layer. Its data is in Content, or in the file Source.
type entry struct {
	Header  tar.Header
	Content []byte
	Source  string
}

func directory(name string, mode int64) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}}
}

func program(name, source string) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, Source: source}
}

func data(name, source string) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, Source: source}
}

func text(name, content string) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, Content: []byte(content)}
}

func symlink(name, target string) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}}
}

// tar returns the layer as a tar archive. Entries are sorted by name, owned by root, and dated 1
// January 1970.
func (l layer) tar() ([]byte, error) {
	entries := slices.Clone(l)
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.Header.Name, b.Header.Name) })
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		content := e.Content
		if e.Source != "" {
			var err error
			if content, err = os.ReadFile(e.Source); err != nil {
				return nil, fmt.Errorf("content of %s: %w", e.Header.Name, err)
			}
		}
		h := e.Header
		h.Size = int64(len(content))
		h.Format = tar.FormatUSTAR
		if err := w.WriteHeader(&h); err != nil {
			return nil, fmt.Errorf("header of %s: %w", h.Name, err)
		}
		if _, err := w.Write(content); err != nil {
			return nil, fmt.Errorf("entry %s: %w", h.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	return buf.Bytes(), nil
}
