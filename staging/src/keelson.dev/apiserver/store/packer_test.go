// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"fmt"
	"maps"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
)

// TestPacker packs records repeatedly, adds new records in between, and checks that the bytes of
// all records stay the same.
func TestPacker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPacker()
		p.groupBytes = int64(rapid.IntRange(1, 400).Draw(t, "group"))
		p.minBytes = int64(rapid.IntRange(0, 200).Draw(t, "min"))
		records := make([]*Record, rapid.IntRange(1, 40).Draw(t, "records"))
		want := make([][]byte, len(records))
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			for i := range records {
				if records[i] != nil && rapid.IntRange(0, 3).Draw(t, "write") > 0 {
					continue
				}
				want[i] = rapid.SliceOfN(rapid.Byte(), 0, 10).Draw(t, "data")
				if rapid.Bool().Draw(t, "alike") {
					want[i] = bytes.Repeat(append(want[i], 'x'), 20)
				}
				records[i] = NewRecord(fmt.Sprint(i), 1, bytes.Clone(want[i]), Attrs{}, nil, nil)
			}
			p.packBlock(records)
			for _, i := range rapid.Permutation(indices(len(records))).Draw(t, "order") {
				r := records[i]
				if !bytes.Equal(r.Bytes(), want[i]) || !bytes.Equal(r.at(2).Bytes(), want[i]) || r.size != len(want[i]) {
					t.Fatalf("record %d: %q, want %q", i, r.Bytes(), want[i])
				}
			}
		}
	})
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// TestPacked checks that similar records take less memory once packed, that the records of a block
// do not spread over an increasing number of packedBytes, and that random bytes are not packed.
func TestPacked(t *testing.T) {
	p := newPacker()
	p.groupBytes, p.minBytes = 1000, 1
	records := make([]*Record, 100)
	for i := range records {
		records[i] = NewRecord(fmt.Sprint(i), 1,
			fmt.Appendf(nil, "one of many similar objects, number %d", i), Attrs{}, nil, nil)
	}
	p.packBlock(records)
	for round := range 40 {
		i := round * 7 % len(records)
		records[i] = NewRecord(fmt.Sprint(i), 2,
			fmt.Appendf(nil, "one of many similar objects, number %d, again and again", i), Attrs{}, nil, nil)
		p.packBlock(records)
	}
	used := map[*packedBytes]bool{}
	var weight, size int64
	for _, r := range records {
		in, _ := r.packedIn()
		used[in] = true
		weight += r.weight()
		size += int64(r.size)
	}
	if weight > size*3/4 || len(used) > 3*maxSpread {
		t.Errorf("%d bytes take %d in %d packedBytes", size, weight, len(used))
	}
	noise := NewRecord("noise", 1, rapid.SliceOfN(rapid.Byte(), 500, 500).Example(1), Attrs{}, nil, nil)
	p.packBlock([]*Record{noise})
	if in, packable := noise.packedIn(); in != nil || packable {
		t.Error("random bytes have been packed, or will be tried again")
	}
}

// TestUnpacked has concurrent readers that use more uncompressed groups at once than the packer
// keeps.
func TestUnpacked(t *testing.T) {
	p := newPacker()
	p.groupBytes, p.minBytes = 1, 1
	records, want := make([]*Record, 3*unpackedKept), make([][]byte, 3*unpackedKept)
	for i := range records {
		want[i] = bytes.Repeat(fmt.Appendf(nil, "record %d ", i), 20)
		records[i] = NewRecord(fmt.Sprint(i), 1, bytes.Clone(want[i]), Attrs{}, nil, nil)
	}
	p.packBlock(records)
	var all func(i int)
	all = func(i int) {
		if i == len(records) {
			return
		}
		records[i].Use(func(data []byte) {
			all(i + 1)
			if !bytes.Equal(data, want[i]) {
				t.Errorf("record %d: %q", i, data)
			}
		})
	}
	all(0)
	var wg sync.WaitGroup
	for reader := range 8 {
		wg.Go(func() {
			for n := range records {
				i := (n*(2*reader+1) + reader) % len(records)
				if got := records[i].Bytes(); !bytes.Equal(got, want[i]) {
					t.Errorf("record %d: %q", i, got)
				}
			}
		})
	}
	wg.Wait()
	if len(p.kept) != unpackedKept {
		t.Errorf("%d uncompressed groups are kept", len(p.kept))
	}
}

// TestIntern checks that selectors match interned attributes in the same way as the original ones.
func TestIntern(t *testing.T) {
	sets := newAttrSets()
	set := rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.SampledFrom([]string{"", "x", "y"}))
	rapid.Check(t, func(t *rapid.T) {
		given := Attrs{Labels: labels.Set(set.Draw(t, "labels")), Fields: fields.Set(set.Draw(t, "fields"))}
		var prev *Record
		if rapid.Bool().Draw(t, "known") {
			prev = NewRecord("k", 1, nil,
				sets.intern(Attrs{Labels: labels.Set(set.Draw(t, "labels")),
					Fields: fields.Set(set.Draw(t, "fields"))}, nil), nil, nil)
		}
		given.Fields[nameField], given.Fields[namespaceField] = "x", "y"
		kept := sets.intern(given, prev)
		record := NewRecord("y/x", 1, nil, kept, nil, nil)
		if !maps.Equal(kept.Labels, given.Labels) {
			t.Fatalf("labels %v, want %v", kept.Labels, given.Labels)
		}
		for _, name := range []string{"a", "b", "c", nameField, namespaceField} {
			for _, value := range []string{"", "x", "y"} {
				for _, s := range []fields.Selector{fields.OneTermEqualSelector(name, value),
					fields.OneTermNotEqualSelector(name, value)} {
					if s.Matches(selectable{record}) != s.Matches(given.Fields) {
						t.Fatalf("%s of %v: %t", s, given.Fields, s.Matches(selectable{record}))
					}
				}
			}
		}
	})
}
