// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"fmt"
	"io"
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
	of map[string]*keptDocument
}

// keptDocument is one of them. It is immutable.
type keptDocument struct {
	origin string // identifies what it is made from
	hash   string // of the document, as Kubernetes has it
	packed []byte // gzip'd
}

// document returns the document of path that is kept, if it is of the origin, or what make makes.
func (p *parts) document(path, origin string, make func() ([]byte, error)) (*keptDocument, error) {
	p.v3.mu.Lock()
	defer p.v3.mu.Unlock()
	if kept := p.v3.of[path]; kept != nil && kept.origin == origin {
		return kept, nil
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
	kept := &keptDocument{origin: origin, hash: fmt.Sprintf("%X", sha512.Sum512(doc)), packed: bytes.Clone(out.Bytes())}
	p.v3.of[path] = kept
	return kept, nil
}

// keep drops the documents of other paths than these.
func (p *parts) keep(paths []string) {
	p.v3.mu.Lock()
	defer p.v3.mu.Unlock()
	for path := range p.v3.of {
		if !slices.Contains(paths, strings.TrimSuffix(path, inProto)) {
			delete(p.v3.of, path)
		}
	}
}

// read returns the document.
func (k *keptDocument) read() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(k.packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
