// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import "weak"

// Alias makes a store serve the objects of another store in another form, for example the events of
// the core group in events.k8s.io. The two stores share the stored bytes, the cache and its window
// of recent changes, so each change is decoded and kept once. Codec, GroupResource and TTL are
// those of the alias. Both codecs must read and write the same bytes. A store has at most one
// alias.
type Alias struct {
	// Of is the store that has the objects.
	Of *Store
	// Convert converts an object of the alias to an object of the other store (Of). Both may share
	// memory.
	Convert func(obj Object) (Object, error)
	// Fields maps names of selectable fields in the alias to their names in the other store (Of), if
	// these differ.
	Fields map[string]string
}

// newAlias returns a store that serves the objects of cfg.Alias.Of.
func newAlias(cfg Config) *Store {
	of := cfg.Alias.Of
	cfg.Prefix, cfg.IndexFields = of.Prefix, of.IndexFields
	cfg.Attrs, cfg.Peek, cfg.Reencode, cfg.FinalState = of.Attrs, of.Peek, of.Reencode, of.FinalState
	return &Store{Config: cfg, b: of.b, prefix: of.prefix, cache: of.cache}
}

// cachePredicate returns p with the field names that the cache uses. If s is an alias, this is the
// cache of the store that has the objects.
func (s *Store) cachePredicate(p Predicate) (Predicate, error) {
	if s.Alias == nil || p.Fields == nil {
		return p, nil
	}
	var err error
	p.Fields, err = p.Fields.Transform(func(field, value string) (string, string, error) {
		if name, ok := s.Alias.Fields[field]; ok {
			field = name
		}
		return field, value, nil
	})
	return p, err
}

// view returns a copy of a record of the cache that decodes with this store's codec. If this store
// is not an alias, it returns r. r may be nil.
func (s *Store) view(r *Record) *Record {
	if s.Alias == nil || r == nil {
		return r
	}
	return r.withCodec(s.Codec)
}

// viewPage replaces the records of a page by copies that decode with this store's codec, if this
// store is an alias.
func (s *Store) viewPage(page *Page) *Page {
	if s.Alias == nil {
		return page
	}
	page.Runs = nil // unset, because the blocks are in the form of the other store
	for i, r := range page.Records {
		page.Records[i] = r.withCodec(s.Codec)
	}
	return page
}

// sharedView is like view, but is for the records of events. Many watchers receive an event at
// about the same time, so they share one copy of its record and the encodings that the copy keeps.
func (s *Store) sharedView(r *Record) *Record {
	if s.Alias == nil {
		return r
	}
	return r.sharedWithCodec(s.Codec, nil)
}

// writtenView is like view, for the record r that a write of obj has made. Readers of the copy may
// receive obj itself instead of decoding the bytes again.
func (s *Store) writtenView(r *Record, obj Object) *Record {
	if s.Alias == nil {
		return r
	}
	obj.SetResourceVersion(formatRevision(r.Revision))
	return r.sharedWithCodec(s.Codec, obj)
}

// withCodec returns a copy of the record that decodes the stored bytes with codec.
func (r *Record) withCodec(codec Codec) *Record {
	out := r.at(r.Revision)
	if !r.sealed() {
		out.codec = codec
	}
	return out
}

// sharedWithCodec is like withCodec, but all callers get the same copy while one of them uses it.
// obj is the decoded object, or nil. The record refers to the copy weakly, because the copy keeps
// the uncompressed bytes after the record has replaced its own by compressed ones.
func (r *Record) sharedWithCodec(codec Codec, obj Object) *Record {
	r.mu.Lock()
	view := r.alias.Value()
	r.mu.Unlock()
	if view != nil {
		return view
	}
	made := r.withCodec(codec)
	made.obj = obj
	r.mu.Lock()
	defer r.mu.Unlock()
	if view = r.alias.Value(); view == nil {
		view, r.alias = made, weak.Make(made)
	}
	return view
}
