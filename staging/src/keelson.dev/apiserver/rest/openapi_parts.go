// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"cmp"
	"compress/flate"
	"fmt"
	"io"
	"slices"
	"sync"
	"weak"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/openapi"
)

// parts caches the contributions of the endpoints to the OpenAPI v2 document. There is one v2
// document for all endpoints. When the server's state changes, the next state takes parts over, so
// that only changed parts are made again. Parts are kept compressed. The document itself is
// referenced weakly, so it is kept only until the next garbage collection.
type parts struct {
	mu   sync.Mutex // held while a document is made, so that only one is made at a time
	kept map[partOf]*packedPart
	made map[bool]weak.Pointer[madeDocument] // the key reports whether the document is in protobuf

	v3 keptDocuments
}

// partOf identifies a part of the OpenAPI document: the contribution of an endpoint in one version.
// When a resource changes, it gets a new endpoint and therefore a new part.
type partOf struct {
	endpoint *endpoint
	version  string
}

// packedPart is the compressed contribution of an endpoint to the OpenAPI document, as JSON (part)
// and as protobuf (document). Each is nil until it is first needed.
type packedPart struct{ part, document []byte }

type madeDocument struct {
	of   *documents
	data []byte
}

// partsBefore returns the cached parts of the current state, which the next state takes over.
func (s *Server) partsBefore() *parts {
	if st := s.state.Load(); st != nil {
		return st.parts
	}
	return &parts{kept: map[partOf]*packedPart{}, made: map[bool]weak.Pointer[madeDocument]{},
		v3: keptDocuments{of: map[string]keptDocument{}}}
}

// v2 returns the OpenAPI v2 document.
func (o *openAPIDocuments) v2(asProto bool) ([]byte, error) {
	o.parts.mu.Lock()
	defer o.parts.mu.Unlock()
	if made := o.parts.made[asProto].Value(); made != nil && made.of == o.d {
		return made.data, nil
	}
	m := &maker{o: o, asProto: asProto, seen: map[partOf]bool{}}
	made := &madeDocument{of: o.d}
	var err error
	if made.data, err = m.make(); err != nil {
		return nil, err
	}
	for of := range o.parts.kept {
		if !m.seen[of] {
			delete(o.parts.kept, of)
		}
	}
	o.parts.made[asProto] = weak.Make(made)
	return made.data, nil
}

// maker makes one OpenAPI v2 document.
type maker struct {
	o       *openAPIDocuments
	asProto bool
	defs    *openapi.Definitions
	sum     *openapi.Sum
	proto   []byte // the parts added so far, in protobuf
	seen    map[partOf]bool

	packer  *flate.Writer
	reader  io.ReadCloser
	scratch []byte // buffer for the current part
}

func (m *maker) make() ([]byte, error) {
	var err error
	if m.defs, err = m.o.definitions(2, nil); err != nil {
		return nil, err
	}
	m.sum = openapi.NewSum(1 << 20)
	for i := range m.o.pages {
		page, err := openapi.NewPagePart(m.defs, &m.o.pages[i])
		if err != nil {
			return nil, err
		}
		m.sum.Add(page)
	}
	for _, gv := range m.o.all() {
		// In Kubernetes, groups that have only custom resources have no path for the group version
		// itself.
		if m.o.d.state.own[gv.group] {
			root, err := openapi.NewPart(m.defs, gv.group, gv.version, nil, false)
			if err != nil {
				return nil, err
			}
			m.sum.Add(root)
		}
		for _, e := range m.o.endpoints(gv) {
			if err := m.add(e, gv.version); err != nil {
				return nil, fmt.Errorf("openapi of %s: %w", e.row.GroupResource(), err)
			}
		}
	}
	doc, err := m.sum.Document(m.defs, m.o.d.s.cfg.Version)
	if err != nil || !m.asProto {
		return doc, err
	}
	common, err := openapiv2.ParseDocument(doc)
	if err != nil {
		return nil, err
	}
	head, err := proto.Marshal(common)
	return append(head, m.proto...), err
}

// endpoints returns the endpoints of a group version, in the order in which the OpenAPI document
// has them.
func (o *openAPIDocuments) endpoints(gv groupVersion) []*endpoint {
	var list []*endpoint
	for _, row := range o.rows(gv) {
		e := o.d.state.endpoints[schema.GroupVersionResource{Group: gv.group, Version: gv.version, Resource: row.Resource}]
		if e != nil && e.row == row {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *endpoint) int { return cmp.Compare(a.row.Resource, b.row.Resource) })
	return list
}

// add adds to the OpenAPI document the part of an endpoint. It makes the part if it is not cached.
func (m *maker) add(e *endpoint, version string) error {
	of := partOf{e, version}
	m.seen[of] = true
	packed := m.o.parts.kept[of]
	if packed == nil {
		packed = &packedPart{}
		m.o.parts.kept[of] = packed
	}
	part, err := m.part(e, version, packed)
	if err != nil {
		return err
	}
	if !m.asProto {
		m.sum.Add(part)
		return nil
	}
	m.sum.AddShared(part)
	if packed.document == nil {
		document, err := part.Document()
		if err != nil {
			return err
		}
		m.proto = append(m.proto, document...)
		packed.document, err = m.pack(document)
		return err
	}
	m.proto, err = m.unpack(m.proto, packed.document)
	return err
}

func (m *maker) part(e *endpoint, version string, packed *packedPart) (*openapi.Part, error) {
	if packed.part != nil {
		var err error
		if m.scratch, err = m.unpack(m.scratch[:0], packed.part); err != nil {
			return nil, err
		}
		return openapi.ReadPart(m.scratch)
	}
	own := e.options.OpenAPI != nil
	if own {
		_, def, err := e.options.OpenAPI(version)
		if err != nil {
			return nil, err
		}
		if err := m.defs.AddKind(e.row, version, def); err != nil {
			return nil, err
		}
	}
	part, err := openapi.NewPart(m.defs, e.row.Group, version, e.row, own)
	if err != nil {
		return nil, err
	}
	packed.part, err = m.pack(part.Append(nil))
	return part, err
}

func (m *maker) pack(data []byte) ([]byte, error) {
	var out bytes.Buffer
	if m.packer == nil {
		var err error
		if m.packer, err = flate.NewWriter(nil, flate.BestSpeed); err != nil {
			return nil, err
		}
	}
	m.packer.Reset(&out)
	if _, err := m.packer.Write(data); err != nil {
		return nil, err
	}
	err := m.packer.Close()
	return bytes.Clone(out.Bytes()), err
}

// unpack appends the decompressed content of packed to b.
func (m *maker) unpack(b, packed []byte) ([]byte, error) {
	src := bytes.NewReader(packed)
	if m.reader == nil {
		m.reader = flate.NewReader(src)
	} else if err := m.reader.(flate.Resetter).Reset(src, nil); err != nil {
		return nil, err
	}
	out := bytes.NewBuffer(b)
	_, err := out.ReadFrom(m.reader)
	return out.Bytes(), err
}
