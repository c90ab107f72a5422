// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"slices"
	"strconv"
)

// Rules that [Counters] and [Files] check.
const (
	LostIncrement = "increment lost"
	LostLine      = "acknowledged line lost"
	TwiceLine     = "line written twice"
	UnknownLine   = "line that nobody wrote"
	DisorderLine  = "lines in a different order than they were written"
)

// Counters checks numbers that clients increment. In ops, the value of each update is the new
// number. final has the numbers at the end, by key.
func Counters(ops []Op, final map[string]int) []Violation {
	var v verdict
	keys, parts := byKey(ops)
	for _, key := range keys {
		var acked []*Op
		unknown := 0
		for _, o := range parts[key] {
			switch {
			case o.Kind != Update || o.Outcome == Refused:
			case o.Outcome == Acknowledged:
				acked = append(acked, o)
			default:
				unknown++
			}
		}
		if n := final[key]; n < len(acked) || n > len(acked)+unknown {
			v.addf(LostIncrement, key, "%d acknowledged, %d unknown, %d in the end", len(acked), unknown, n)
		}
		slices.SortFunc(acked, func(a, b *Op) int { return cmp.Compare(a.Version, b.Version) })
		for i, o := range acked {
			if i > 0 && sum(o) <= sum(acked[i-1]) {
				v.addf(LostIncrement, key, "%v wrote no higher number than %v", o, acked[i-1])
			}
		}
	}
	return v
}

func sum(o *Op) int {
	n, err := strconv.Atoi(o.Value)
	if err != nil {
		return -1
	}
	return n
}

// Files checks files. Each file has one writer, which appends lines one after the other. final has
// the lines of each file at the end.
func Files(ops []Op, final map[string][]string) []Violation {
	var v verdict
	keys, parts := byKey(ops)
	for _, key := range keys {
		written, place := map[string]*Op{}, map[string]int{}
		for i, o := range parts[key] {
			if o.Kind == Append && o.Outcome != Refused {
				written[o.Value], place[o.Value] = o, i
			}
		}
		found := map[string]bool{}
		last := ""
		for _, line := range final[key] {
			switch o := written[line]; {
			case o == nil:
				v.addf(UnknownLine, key, "%q", line)
				continue
			case found[line]:
				v.addf(TwiceLine, key, "%v", o)
			case last != "" && place[line] < place[last] && o.Outcome == Acknowledged:
				v.addf(DisorderLine, key, "%v comes after %v", o, written[last])
			}
			found[line] = true
			if written[line].Outcome == Acknowledged {
				last = line
			}
		}
		for _, o := range parts[key] {
			if o.Kind == Append && o.Outcome == Acknowledged && !found[o.Value] {
				v.addf(LostLine, key, "%v", o)
			}
		}
	}
	return v
}
