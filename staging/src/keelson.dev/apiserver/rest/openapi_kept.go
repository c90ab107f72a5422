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

// inProto is appended to a document's path in the cache if the document is in protobuf.
const inProto = "+protobuf"

// keptDocuments caches the OpenAPI v3 documents by path. When the server's state changes, the next
// state takes it over, so that only changed documents are made again.
type keptDocuments struct {
	mu sync.Mutex // held while a document is made, so that only one is made at a time
	of map[string]keptDocument
}

// keptDocument is a cached document. It is immutable.
type keptDocument struct {
	origin string // hash of the inputs of the document
	packed []byte // the document, compressed with gzip
}

// document returns the cached document at path if it has the given origin. Otherwise it calls build
// and caches the result. It drops cached documents whose path is not in the result of paths.
func (p *parts) document(path, origin string, paths func() []string, build func() ([]byte, error)) ([]byte, error) {
	p.v3.mu.Lock()
	defer p.v3.mu.Unlock()
	if kept := p.v3.of[path]; kept.origin == origin {
		r, err := gzip.NewReader(bytes.NewReader(kept.packed))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	}
	doc, err := build()
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
