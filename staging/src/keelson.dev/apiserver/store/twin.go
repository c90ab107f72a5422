// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import "weak"

// Twin makes a store show the objects of another one in another form: the stored
// bytes, the cache and its window are that store's, so that a change is looked at
// and kept once. Codec, GroupResource and TTL are the twin's own; both codecs read and
// write the same bytes. A store has one twin at most.
type Twin struct {
	Of *Store
	// Convert makes of an object of the twin one of Of's. They may share what
	// they point to.
	Convert func(obj Object) (Object, error)
	// Fields are the names with Of of those selectable fields that have another there.
	Fields map[string]string
}

// newTwin returns a store that shows what cfg.Twin.Of has.
func newTwin(cfg Config) *Store {
	of := cfg.Twin.Of
	cfg.Prefix, cfg.Attrs, cfg.Peek, cfg.Renew, cfg.End, cfg.IndexFields = of.Prefix, of.Attrs, of.Peek, of.Renew, of.End, of.IndexFields
	return &Store{Config: cfg, b: of.b, prefix: of.prefix, cache: of.cache}
}

// selects is the predicate as the cache understands it.
func (s *Store) selects(p Predicate) (Predicate, error) {
	if s.Twin == nil || p.Fields == nil {
		return p, nil
	}
	var err error
	p.Fields, err = p.Fields.Transform(func(field, value string) (string, string, error) {
		if name, ok := s.Twin.Fields[field]; ok {
			field = name
		}
		return field, value, nil
	})
	return p, err
}

// shows is a record of the cache, or nil, as readers of this store are to have it.
func (s *Store) shows(r *Record) *Record {
	if s.Twin == nil || r == nil {
		return r
	}
	return r.as(s.Codec)
}

// showsAll does to the records of a page what shows does to one.
func (s *Store) showsAll(page *Page) *Page {
	if s.Twin == nil {
		return page
	}
	page.Runs = nil // the blocks are not of this form
	for i, r := range page.Records {
		page.Records[i] = r.as(s.Codec)
	}
	return page
}

// announces is shows for what many are told of at about the same time: they share
// what it remembers.
func (s *Store) announces(r *Record) *Record {
	if s.Twin == nil {
		return r
	}
	return r.twinAs(s.Codec, nil)
}

// wrote is the record of a write of obj, which the record may show.
func (s *Store) wrote(r *Record, obj Object) *Record {
	if s.Twin == nil {
		return r
	}
	obj.SetResourceVersion(formatRevision(r.Revision))
	return r.twinAs(s.Codec, obj)
}

// as returns the record as codec reads it.
func (r *Record) as(codec Codec) *Record {
	out := r.at(r.Revision)
	out.codec = codec
	return out
}

// twinAs is as, of which there is one as long as somebody has it. obj is its
// decoded form where the caller has it at hand. Kept, it would hold bytes that the
// record has given up when they were packed.
func (r *Record) twinAs(codec Codec, obj Object) *Record {
	r.mu.Lock()
	twin := r.twin.Value()
	r.mu.Unlock()
	if twin != nil {
		return twin
	}
	made := r.as(codec)
	made.obj = obj
	r.mu.Lock()
	defer r.mu.Unlock()
	if twin = r.twin.Value(); twin == nil {
		twin, r.twin = made, weak.Make(made)
	}
	return twin
}
