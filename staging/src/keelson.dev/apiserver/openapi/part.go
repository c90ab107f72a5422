// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
)

// Part is the contribution of one resource in one version to a v2 document. A document is assembled
// from its parts, so if one resource changes, only its parts have to be made again.
type Part struct {
	paths       []byte   // members of a JSON object, separated by commas
	definitions []byte   // members for the definitions of the resource's own kinds
	uses        []string // names of other definitions that the part needs
	parameters  []member // parameters that several operations use
}

type member struct{ name, value string }

// NewPart returns the part of a resource in a version in which it is served. The argument own
// reports whether defs was extended with the definitions of the resource's kind, so that they
// belong to the part. If row is nil, the part has the paths of the group version itself.
func NewPart(defs *Definitions, group, version string, row *resource.Row, own bool) (*Part, error) {
	shared := newParameters()
	p := newPaths(dialect{v: 2, shared: shared}, defs, group, version)
	if row == nil {
		p.root()
	} else {
		p.row(row)
	}
	part := &Part{}
	var err error
	if part.paths, err = members(p.out); err != nil {
		return nil, err
	}
	if own {
		if err := part.take(p, row); err != nil {
			return nil, err
		}
	}
	part.uses = slices.Sorted(maps.Keys(p.used))
	for _, name := range slices.Sorted(maps.Keys(shared.defs)) {
		value, err := json.Marshal(shared.defs[name])
		if err != nil {
			return nil, err
		}
		part.parameters = append(part.parameters, member{name, string(value)})
	}
	return part, nil
}

// take moves the definitions of the resource's kind and its list into the part.
func (part *Part) take(p *paths, row *resource.Row) error {
	gvk := schema.GroupVersionKind{Group: p.group, Version: p.version, Kind: row.Kind}
	own := map[string]any{}
	for _, kind := range []string{row.Kind, listKind(row)} {
		gvk.Kind = kind
		name := p.defs.Name(gvk)
		own[name] = p.defs.Schemas[name]
		for _, ref := range p.defs.refs(p.defs.Schemas[name]) {
			p.used[ref] = true
		}
	}
	for name := range own {
		delete(p.used, name)
	}
	var err error
	part.definitions, err = members(own)
	return err
}

// members returns m as JSON without its braces.
func members(m map[string]any) ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return b[1 : len(b)-1], nil
}

// Document returns the part as a protobuf message of a document. Concatenated messages are one
// document with the content of all of them.
func (part *Part) Document() ([]byte, error) {
	doc := fmt.Appendf(nil,
		`{"swagger":"2.0","info":{"title":"","version":""},"paths":{%s},"definitions":{%s}}`, part.paths, part.definitions)
	m, err := openapiv2.ParseDocument(doc)
	if err != nil {
		return nil, err
	}
	m.Swagger, m.Info = "", nil
	return proto.Marshal(m)
}

// Append appends the part to b, in an encoding that ReadPart decodes.
func (part *Part) Append(b []byte) []byte {
	b = appendBytes(appendBytes(b, part.paths), part.definitions)
	b = binary.AppendUvarint(b, uint64(len(part.uses)))
	for _, name := range part.uses {
		b = appendBytes(b, name)
	}
	b = binary.AppendUvarint(b, uint64(len(part.parameters)))
	for _, m := range part.parameters {
		b = appendBytes(appendBytes(b, m.name), m.value)
	}
	return b
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errPart = errors.New("openapi: invalid part")

// ReadPart decodes what Append has written. The part shares memory with b.
func ReadPart(b []byte) (part *Part, err error) {
	part, r := &Part{}, reader{b}
	part.paths, part.definitions = r.bytes(), r.bytes()
	for range r.count() {
		part.uses = append(part.uses, string(r.bytes()))
	}
	for range r.count() {
		part.parameters = append(part.parameters, member{string(r.bytes()), string(r.bytes())})
	}
	if r.b == nil {
		return nil, errPart
	}
	return part, nil
}

// reader decodes b, which is nil after the first error.
type reader struct{ b []byte }

func (r *reader) count() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > uint64(len(r.b)-size) {
		r.b = nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) bytes() []byte {
	n := r.count()
	if r.b == nil {
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// Sum assembles a v2 document from parts.
type Sum struct {
	paths, definitions []byte
	uses               map[string]bool
	parameters         map[string]json.RawMessage
}

// pathsHead is the beginning of an OpenAPI v2 document. The paths, which are most of a document,
// follow it.
const pathsHead = `{"paths":{`

// NewSum returns a Sum without parts. It allocates space for a document of size bytes.
func NewSum(size int) *Sum {
	return &Sum{paths: append(make([]byte, 0, size), pathsHead...), uses: map[string]bool{},
		parameters: map[string]json.RawMessage{}}
}

// Add adds a part to the document.
func (s *Sum) Add(part *Part) {
	s.paths = appendMembers(s.paths, part.paths, len(pathsHead))
	s.definitions = appendMembers(s.definitions, part.definitions, 0)
	s.AddShared(part)
}

// AddShared adds to the document the definitions and parameters that the part needs and that other
// parts may need too.
func (s *Sum) AddShared(part *Part) {
	for _, name := range part.uses {
		s.uses[name] = true
	}
	for _, m := range part.parameters {
		if _, ok := s.parameters[m.name]; !ok {
			s.parameters[m.name] = json.RawMessage(m.value)
		}
	}
}

// appendMembers appends JSON members to those in the first argument, which begin at the given
// index. It inserts a comma if both have members.
func appendMembers(to, members []byte, from int) []byte {
	if len(to) > from && len(members) > 0 {
		to = append(to, ',')
	}
	return append(to, members...)
}

// Document returns the document. defs has the definitions that the parts use. The Sum must not be
// used afterwards.
func (s *Sum) Document(defs *Definitions, serverVersion string) ([]byte, error) {
	used := map[string]any{}
	for name, def := range defs.closure(s.uses) {
		used[name] = def
	}
	shared, err := members(used)
	if err != nil {
		return nil, err
	}
	rest, err := members(map[string]any{
		"swagger": "2.0", "info": info(serverVersion), "parameters": s.parameters,
		"securityDefinitions": bearer(), "security": []any{map[string]any{"BearerToken": []any{}}},
	})
	if err != nil {
		return nil, err
	}
	out := append(s.paths, `},"definitions":{`...)
	out = append(out, appendMembers(s.definitions, shared, 0)...)
	out = append(append(out, "},"...), rest...)
	return append(out, '}'), nil
}
