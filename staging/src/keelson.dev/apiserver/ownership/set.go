// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"slices"
	"strings"
)

// set is a set of paths, as a tree. nil is the empty set. The entries are sorted by
// compareElements. A set is not modified after it is built.
type set []entry

// entry is a path element with the entries below it. Its path is in the set if member is true. An
// entry is a member, has entries below it, or both.
type entry struct {
	element string
	member  bool
	below   set
}

// builder builds sets from the leaves up. For each path, the caller calls begin, then close for
// each element below the path, in order, and then close for the path itself. The sets of one
// builder share blocks of memory, so a block stays in memory while one of its sets is in use.
type builder struct {
	open  []entry // entries whose parents are not closed
	block []entry // new sets use its spare capacity
	used  int     // number of entries of all sets since reset
}

// leastBlock and mostBlock bound the number of entries of a block. keptBlock bounds the block that
// a builder keeps after reset.
const leastBlock, mostBlock, keptBlock = 16, 128, 1024

// reset prepares the builder for other sets. Sets that it has built must not be used afterwards.
func (b *builder) reset() {
	clear(b.open[:cap(b.open)])
	b.open = b.open[:0]
	switch {
	case b.used > cap(b.block) && b.used <= keptBlock:
		b.block = make([]entry, 0, b.used) // one block that would have had room for all sets
	case cap(b.block) > keptBlock:
		b.block = nil
	default:
		clear(b.block)
		b.block = b.block[:0]
	}
	b.used = 0
}

func (b *builder) begin() int { return len(b.open) }

// end returns the set of the elements that were closed since start.
func (b *builder) end(start int) set {
	if len(b.open) == start {
		return nil
	}
	done := b.open[start:]
	if cap(b.block)-len(b.block) < len(done) {
		b.block = make([]entry, 0, max(min(2*cap(b.block), mostBlock), leastBlock, len(done)))
	}
	b.used += len(done)
	from := len(b.block)
	b.block = append(b.block, done...)
	b.drop(start)
	return b.block[from:len(b.block):len(b.block)]
}

// close adds a path element. The elements that were closed since start are below it. If member is
// false and there are none, it adds nothing.
func (b *builder) close(element string, start int, member bool) {
	if member || len(b.open) > start {
		below := b.end(start)
		b.open = append(b.open, entry{element, member, below})
	}
}

// drop removes the elements that were closed since start.
func (b *builder) drop(start int) { b.open = b.open[:start] }

// pathSet returns the set of the fields with the given paths, which have dots between their names
// and are sorted.
func pathSet(paths []string) set {
	var out set
	for i := 0; i < len(paths); {
		name, _, _ := strings.Cut(paths[i], ".")
		var below []string
		member := false
		for ; i < len(paths); i++ {
			rest, ok := strings.CutPrefix(paths[i], name)
			if !ok || rest != "" && rest[0] != '.' {
				break
			}
			if rest == "" {
				member = true
			} else {
				below = append(below, rest[1:])
			}
		}
		out = append(out, entry{"f:" + name, member, pathSet(below)})
	}
	return out
}

// merge calls visit for each path element that is in a or b, in order. x is nil if a lacks the
// element, and y if b lacks it.
func merge(a, b set, visit func(x, y *entry)) {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch c := compareElements(a[i].element, b[j].element); {
		case c < 0:
			visit(&a[i], nil)
			i++
		case c > 0:
			visit(nil, &b[j])
			j++
		default:
			visit(&a[i], &b[j])
			i, j = i+1, j+1
		}
	}
	for ; i < len(a); i++ {
		visit(&a[i], nil)
	}
	for ; j < len(b); j++ {
		visit(nil, &b[j])
	}
}

// union returns the field paths that are in a or b.
func union(a, b set) set {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	out := make(set, 0, max(len(a), len(b)))
	merge(a, b, func(x, y *entry) {
		switch {
		case y == nil:
			out = append(out, *x)
		case x == nil:
			out = append(out, *y)
		default:
			out = append(out, entry{x.element, x.member || y.member, union(x.below, y.below)})
		}
	})
	return out
}

// difference returns the paths that are in a and not in b. Paths below a path in b stay.
func difference(a, b set) set {
	if len(a) == 0 || len(b) == 0 {
		return a
	}
	var out set
	merge(a, b, func(x, y *entry) {
		switch {
		case x == nil:
		case y == nil:
			out = append(out, *x)
		default:
			e := entry{x.element, x.member && !y.member, difference(x.below, y.below)}
			if e.member || len(e.below) > 0 {
				out = append(out, e)
			}
		}
	})
	return out
}

// without returns the field paths of a that are neither in b nor below a path in b.
func without(a, b set) set {
	if len(a) == 0 || len(b) == 0 {
		return a
	}
	var out set
	merge(a, b, func(x, y *entry) {
		switch {
		case x == nil, y != nil && y.member:
		case y == nil:
			out = append(out, *x)
		default:
			e := entry{x.element, x.member, without(x.below, y.below)}
			if e.member || len(e.below) > 0 {
				out = append(out, e)
			}
		}
	})
	return out
}

// intersection returns the field paths that are in a and in b.
func intersection(a, b set) set {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	var out set
	merge(a, b, func(x, y *entry) {
		if x == nil || y == nil {
			return
		}
		e := entry{x.element, x.member && y.member, intersection(x.below, y.below)}
		if e.member || len(e.below) > 0 {
			out = append(out, e)
		}
	})
	return out
}

// equal reports whether a and b have the same field paths.
func equal(a, b set) bool {
	return slices.EqualFunc(a, b, func(x, y entry) bool {
		return x.element == y.element && x.member == y.member && equal(x.below, y.below)
	})
}
