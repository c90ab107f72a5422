// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

// slot is an element of a merged list, with its index in each of the two lists. The index is -1 if
// the list does not have the element.
type slot struct {
	name         string
	theirs, mine int
}

// interleave merges two lists of distinct names in the order of server-side apply. mine is the
// applied list, and keeps its order. theirs is the list of the object. A name that is only in
// theirs is put before the next name of theirs that is in both lists.
func interleave(theirs, mine []string) []slot {
	inTheirs, inMine := positions(theirs), positions(mine)
	at := func(index map[string]int, name string) int {
		if i, ok := index[name]; ok {
			return i
		}
		return -1
	}
	var shared []string // the remaining names that are in both lists, in the order of mine
	for _, name := range mine {
		if at(inTheirs, name) >= 0 {
			shared = append(shared, name)
		}
	}
	next := "" // the next shared name
	pass := func() {
		next = ""
		if len(shared) > 0 {
			next, shared = shared[0], shared[1:]
		}
	}
	pass()
	out := make([]slot, 0, max(len(theirs), len(mine)))
	done := make(map[string]bool, len(mine))
	for l, r := 0, 0; l < len(theirs) || r < len(mine); {
		if l < len(theirs) && r < len(mine) {
			name := theirs[l]
			if name == mine[r] {
				out, done[name] = append(out, slot{name, l, r}), true
				l, r = l+1, r+1
				pass()
				continue
			}
			if at(inMine, name) >= 0 && next != "" && next != name {
				l++ // skip the name: it is added when r reaches it in mine
				continue
			}
		}
		if l < len(theirs) {
			name := theirs[l]
			if at(inMine, name) < 0 {
				out = append(out, slot{name, l, -1})
				l++
				continue
			}
			if done[name] {
				l++
			}
		}
		if r < len(mine) {
			name := mine[r]
			out, done[name] = append(out, slot{name, at(inTheirs, name), r}), true
			r++
			if next == name {
				pass()
			}
		}
	}
	return out
}

// positions returns the index of each name.
func positions(names []string) map[string]int {
	index := make(map[string]int, len(names))
	for i, name := range names {
		index[name] = i
	}
	return index
}

// sameOrder reports whether a merged list has the same elements in the same order as theirs. n is
// the number of elements in theirs.
func sameOrder(merged []slot, n int) bool {
	if len(merged) != n {
		return false
	}
	for i, s := range merged {
		if s.theirs != i {
			return false
		}
	}
	return true
}
