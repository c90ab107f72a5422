// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// interval is a range of completion indexes from first to last, including both.
type interval struct{ first, last int }

// indexes is a set of completion indexes, as sorted intervals that do not touch each other. A set
// is never modified.
type indexes []interval

// parseIndexes parses the result of String. It ignores indexes that are not below limit, and parts
// that cannot be parsed.
func parseIndexes(text string, limit int) indexes {
	var out []interval
	for part := range strings.SplitSeq(text, ",") {
		low, high, ranged := strings.Cut(part, "-")
		if !ranged {
			high = low
		}
		first, err := strconv.Atoi(low)
		if err != nil {
			continue
		}
		last, err := strconv.Atoi(high)
		if err != nil {
			continue
		}
		out = append(out, interval{first, min(last, limit-1)})
	}
	return normalize(out)
}

// indexSet returns the set of the indexes in a list, which need not be sorted.
func indexSet(list []int) indexes {
	out := make([]interval, len(list))
	for i, index := range list {
		out[i] = interval{index, index}
	}
	return normalize(out)
}

// normalize sorts intervals and joins those that overlap or follow each other without a gap.
func normalize(list []interval) indexes {
	slices.SortFunc(list, func(a, b interval) int { return cmp.Compare(a.first, b.first) })
	var out indexes
	for _, next := range list {
		switch n := len(out); {
		case next.last < next.first:
		case n > 0 && next.first <= out[n-1].last+1:
			out[n-1].last = max(out[n-1].last, next.last)
		default:
			out = append(out, next)
		}
	}
	return out
}

func (x indexes) union(y indexes) indexes { return normalize(slices.Concat(x, y)) }

// common returns how many indexes are in both sets.
func (x indexes) common(y indexes) int {
	n := 0
	for i, j := 0, 0; i < len(x) && j < len(y); {
		n += max(0, min(x[i].last, y[j].last)-max(x[i].first, y[j].first)+1)
		if x[i].last < y[j].last {
			i++
		} else {
			j++
		}
	}
	return n
}

func (x indexes) count() int {
	n := 0
	for _, v := range x {
		n += v.last - v.first + 1
	}
	return n
}

func (x indexes) has(index int) bool {
	at, _ := slices.BinarySearchFunc(x, index, func(v interval, index int) int { return cmp.Compare(v.last, index) })
	return at < len(x) && x[at].first <= index
}

// missing returns the lowest n indexes that are below limit and not in the set.
func (x indexes) missing(n, limit int) []int {
	var out []int
	next := 0
	for _, v := range append(slices.Clip(x), interval{limit, limit}) {
		for ; next < min(v.first, limit) && len(out) < n; next++ {
			out = append(out, next)
		}
		next = max(next, v.last+1)
	}
	return out
}

// String returns the set in the form that the status uses, such as 1,3-5,7,8.
func (x indexes) String() string {
	var b strings.Builder
	for _, v := range x {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(v.first))
		if v.last > v.first {
			if v.last == v.first+1 {
				b.WriteByte(',')
			} else {
				b.WriteByte('-')
			}
			b.WriteString(strconv.Itoa(v.last))
		}
	}
	return b.String()
}
