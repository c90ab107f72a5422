// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

// watcherSet holds the watchers of a resource, grouped by the name, index field or namespace that
// they require, so that a change wakes only the watchers that may select it.
//
// Invariant: each watcher is in exactly one bucket, and count is the number of watchers. cache.mu
// guards the set.
type watcherSet struct {
	all         map[*watcher]struct{} // watchers that require neither a name, an index field nor a namespace
	byName      map[string]map[*watcher]struct{}
	byField     map[string]map[string]map[*watcher]struct{}
	byNamespace map[string]map[*watcher]struct{}
	count       int
}

// bucket returns the bucket of w, and creates it if it is missing.
func (s *watcherSet) bucket(w *watcher, indexFields []string) *map[*watcher]struct{} {
	if w.match.name != "" {
		return inner(&s.byName, w.match.name)
	}
	if f, v, ok := w.match.indexed(indexFields); ok {
		if s.byField == nil {
			s.byField = map[string]map[string]map[*watcher]struct{}{}
		}
		byValue := s.byField[f]
		set := inner(&byValue, v)
		s.byField[f] = byValue
		return set
	}
	if w.match.namespace != "" {
		return inner(&s.byNamespace, w.match.namespace)
	}
	if s.all == nil {
		s.all = map[*watcher]struct{}{}
	}
	return &s.all
}

// inner returns m[key], and creates it if it is missing.
func inner(m *map[string]map[*watcher]struct{}, key string) *map[*watcher]struct{} {
	if *m == nil {
		*m = map[string]map[*watcher]struct{}{}
	}
	set := (*m)[key]
	if set == nil {
		set = map[*watcher]struct{}{}
		(*m)[key] = set
	}
	return &set
}

func (s *watcherSet) add(w *watcher, indexFields []string) {
	(*s.bucket(w, indexFields))[w] = struct{}{}
	s.count++
}

func (s *watcherSet) remove(w *watcher, indexFields []string) {
	set := *s.bucket(w, indexFields)
	if _, ok := set[w]; ok {
		delete(set, w)
		s.count--
	}
	if len(set) > 0 {
		return
	}
	if w.match.name != "" {
		delete(s.byName, w.match.name)
	} else if f, v, ok := w.match.indexed(indexFields); ok {
		delete(s.byField[f], v)
	} else if w.match.namespace != "" {
		delete(s.byNamespace, w.match.namespace)
	}
}

// notify wakes the watchers that may select the change at position pos, or its previous state.
func (s *watcherSet) notify(indexFields []string, ch *change, pos uint64) {
	if s.count == 0 {
		return
	}
	wakeAll(s.all, pos)
	key := ch.key()
	if len(s.byName) > 0 {
		wakeAll(s.byName[nameOf(key)], pos)
	}
	if len(s.byNamespace) > 0 {
		wakeAll(s.byNamespace[namespaceOf(key)], pos)
	}
	for _, f := range indexFields {
		byValue := s.byField[f]
		if len(byValue) == 0 {
			continue
		}
		if ch.cur != nil {
			wakeAll(byValue[ch.cur.Attrs.Fields[f]], pos)
		}
		if ch.prev != nil && (ch.cur == nil || ch.cur.Attrs.Fields[f] != ch.prev.Attrs.Fields[f]) {
			wakeAll(byValue[ch.prev.Attrs.Fields[f]], pos)
		}
	}
}

func wakeAll(set map[*watcher]struct{}, pos uint64) {
	for w := range set {
		w.notify(pos)
	}
}

// endAll ends all watchers, because they may have missed events. oldest is the earliest revision
// after which a watch can start; it is for the error text.
func (s *watcherSet) endAll(oldest int64) {
	end := func(set map[*watcher]struct{}) {
		for w := range set {
			w.end(oldest)
		}
	}
	end(s.all)
	for _, set := range s.byName {
		end(set)
	}
	for _, set := range s.byNamespace {
		end(set)
	}
	for _, byValue := range s.byField {
		for _, set := range byValue {
			end(set)
		}
	}
	*s = watcherSet{}
}
