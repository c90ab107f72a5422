// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
)

// inProto marks the path of a document as that of its form in protobuf.
const inProto = "+protobuf"

// keptDocuments are the OpenAPI v3 documents that have been made, by path. They outlive
// the states that they were made in: after a change, only what changed is made anew.
type keptDocuments struct {
	mu sync.Mutex // held while a document is made: one at a time
	of map[string]keptDocument
}

// keptDocument is one of them. It is immutable.
type keptDocument struct {
	origin string // identifies what it is made from
	packed []byte // gzip'd
}

// document returns the document of path that is kept, if it is of the origin, or what make
// makes. paths are those that are kept beside it.
func (p *parts) document(path, origin string, paths func() []string, make func() ([]byte, error)) ([]byte, error) {
	p.v3.mu.Lock()
	defer p.v3.mu.Unlock()
	if kept := p.v3.of[path]; kept.origin == origin {
		r, err := gzip.NewReader(bytes.NewReader(kept.packed))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	}
	doc, err := make()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(doc); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	present := paths()
	maps.DeleteFunc(p.v3.of, func(path string, _ keptDocument) bool {
		return !slices.Contains(present, strings.TrimSuffix(path, inProto))
	})
	p.v3.of[path] = keptDocument{origin: origin, packed: bytes.Clone(out.Bytes())}
	return doc, nil
}
