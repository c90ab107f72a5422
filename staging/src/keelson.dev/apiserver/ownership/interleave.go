// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

// slot is an element of a merged list, with its index in each of the two lists, or -1.
type slot struct {
	name         string
	theirs, mine int
}

// interleave merges two lists of distinct names like server-side apply: mine, the applied list,
// keeps its order, and the other elements of theirs, the object's list, are put before the shared
// element that follows them in theirs.
func interleave(theirs, mine []string) []slot {
	inTheirs, inMine := positions(theirs), positions(mine)
	at := func(index map[string]int, name string) int {
		if i, ok := index[name]; ok {
			return i
		}
		return -1
	}
	var shared []string // names in both lists that have not been passed, in the order of mine
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
				l++ // skip it: it is added when r reaches it in mine
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

// sameOrder reports whether a merged list has the same elements in the same order as theirs, a list
// of n elements.
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
