// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// checkEncodings compares the encodings of a page's blocks with the encodings of their single
// records.
func checkEncodings(page *Page) error {
	if page.Runs == nil {
		return nil
	}
	records := page.Records
	for _, run := range page.Runs {
		if run.N > len(records) {
			return fmt.Errorf("run of %d of %d records", run.N, len(records))
		}
		if run.Block != nil {
			if err := checkRun(run, records[:run.N]); err != nil {
				return err
			}
		}
		records = records[run.N:]
	}
	if len(records) > 0 {
		return fmt.Errorf("%d records are in no run", len(records))
	}
	return nil
}

func checkRun(run Run, records []*Record) error {
	if !slices.Equal(run.Block.records[run.From:run.From+run.N], records) {
		return fmt.Errorf("run %d+%d is not the page's records", run.From, run.N)
	}
	for _, j := range joiners() {
		encoded, ends, err := run.Block.Encoded(j, []byte("before"))
		if err != nil {
			return err
		}
		want := joined(j, run.Block.records)
		if string(encoded) != "before"+want {
			return fmt.Errorf("encoded %q, want %q", encoded, want)
		}
		for i, part := range strings.Split(want, j.Separator) {
			from := int(ends[i]) - len(part)
			if got := want[from:ends[i]]; got != part {
				return fmt.Errorf("item %d is %q, want %q", i, got, part)
			}
		}
		p, err := run.Block.Deflated(j)
		if err != nil {
			return err
		}
		inflated, err := io.ReadAll(flate.NewReader(bytes.NewReader(p.Data)))
		if !errors.Is(err, io.ErrUnexpectedEOF) || string(inflated) != want || p.Size != len(want) ||
			p.Sum != crc32.ChecksumIEEE(inflated) {
			return fmt.Errorf("deflated %+v: %q, want %q", p, inflated, want)
		}
	}
	return nil
}

// joiners returns two joiners with different forms. The encodings that one of them makes grow with
// the object.
func joiners() []*Joiner {
	return []*Joiner{
		{Form: Form{Variant: "data"}, Separator: "|", Append: func(dst []byte, r *Record) ([]byte, error) {
			return fmt.Appendf(dst, "%s@%d=%x", r.Key, r.Revision, r.Bytes()), nil
		}},
		{Form: Form{Variant: "key"}, Separator: "||", Append: func(dst []byte, r *Record) ([]byte, error) {
			return append(dst, r.Key...), nil
		}},
	}
}

func joined(j *Joiner, records []*Record) string {
	parts := make([]string, len(records))
	for i, r := range records {
		b, _ := j.Append(nil, r) // the joiners of this test never fail
		parts[i] = string(b)
	}
	return strings.Join(parts, j.Separator)
}

// treeStep is one operation on a tree.
type treeStep struct {
	Kind      string
	Key, Size int
}

// TestTree makes random changes to a tree and checks that the tree and all of its snapshots have
// the same records as sorted maps with the same changes.
func TestTree(t *testing.T) {
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) treeStep {
		return treeStep{
			Kind: rapid.SampledFrom([]string{"put", "put", "put", "delete", "delete", "snapshot", "read"}).Draw(t, "kind"),
			Key:  rapid.IntRange(0, 60).Draw(t, "key"), Size: rapid.IntRange(0, 40).Draw(t, "size"),
		}
	}), 1, 300)
	rapid.Check(t, func(t *rapid.T) {
		cache := newEncodingCache(int64(rapid.IntRange(0, 3000).Draw(t, "cache")))
		cache.blockRecords, cache.blockBytes = rapid.IntRange(1, 8).Draw(t, "records"), 100
		tree, model := newTree(cache), map[string]*Record{}
		tree.fill(loaded(t, model))
		type moment struct {
			blocks
			model map[string]*Record
		}
		var moments []moment
		for rev, s := range steps.Draw(t, "steps") {
			key := fmt.Sprintf("ns%d/t%02d", s.Key%3, s.Key)
			switch s.Kind {
			case "put":
				r := NewRecord(key, int64(rev), bytes.Repeat([]byte{byte(rev)}, s.Size), Attrs{}, nil, nil)
				tree.put(r)
				model[key] = r
			case "delete":
				tree.delete(key)
				delete(model, key)
			case "snapshot":
				moments = append(moments, moment{tree.snapshot(), maps.Clone(model)})
			case "read":
				if len(moments) > 0 {
					m := moments[s.Key%len(moments)]
					checkBlocks(t, m.blocks, m.model, key)
				}
			}
			if tree.get(key) != model[key] || tree.n != len(model) {
				t.Fatalf("%s: %v, %d records, want %v, %d", key, tree.get(key), tree.n, model[key], len(model))
			}
		}
		for _, m := range append(moments, moment{tree.snapshot(), model}) {
			checkBlocks(t, m.blocks, m.model, "ns1/t30")
		}
		if held := cache.held(); held > cache.max {
			t.Fatalf("%d bytes are held of %d", held, cache.max)
		}
	})
}

// TestSplitLargeRecords puts a large record between other large ones and checks that no block is
// too large after the split, which may need three blocks.
func TestSplitLargeRecords(t *testing.T) {
	for _, sizes := range [][]int{{6, 18, 39, 22, 40}, {40, 60, 90}} {
		cache := newEncodingCache(0)
		cache.blockRecords, cache.blockBytes = 4, 100
		tree := newTree(cache)
		last := len(sizes) - 1
		for i, size := range sizes {
			key := fmt.Sprint(2 * i)
			if i == last {
				key = fmt.Sprint(2*i - 3) // a key before that of the previous record
			}
			tree.put(NewRecord(key, int64(i), make([]byte, size), Attrs{}, nil, nil))
		}
		for _, b := range tree.blocks {
			if b.large() {
				t.Errorf("%v: a block of %d records with %d bytes", sizes, len(b.records), b.size)
			}
		}
	}
}

// loaded returns random records in key order, and adds them to model.
func loaded(t *rapid.T, model map[string]*Record) []*Record {
	var records []*Record
	for i, size := range rapid.SliceOfN(rapid.IntRange(0, 40), 0, 60).Draw(t, "loaded") {
		records = append(records, NewRecord(fmt.Sprintf("ns0/t%02d", i), 0, make([]byte, size), Attrs{}, nil, nil))
		model[records[i].Key] = records[i]
	}
	return records
}

func checkBlocks(t *rapid.T, got blocks, model map[string]*Record, from string) {
	for _, b := range got.list {
		size := 0
		for _, r := range b.records {
			size += len(r.Bytes())
		}
		if len(b.records) == 0 || size != b.size {
			t.Fatalf("block of %d records with %d bytes, says %d", len(b.records), size, b.size)
		}
		if len(b.records) > 1 && (len(b.records) > b.cache.blockRecords || size > b.cache.blockBytes) {
			t.Fatalf("block of %d records with %d bytes is too large", len(b.records), size)
		}
	}
	for _, prefix := range []string{"", "ns1/", "ns9/"} {
		for _, start := range []string{"", from} {
			var want []*Record
			for _, key := range slices.Sorted(maps.Keys(model)) {
				if key >= start && strings.HasPrefix(key, prefix) {
					want = append(want, model[key])
				}
			}
			page := &Page{}
			got.ascend(prefix, start, func(b *Block, i, n int) bool {
				page.Records = append(page.Records, b.records[i:i+n]...)
				page.Runs = append(page.Runs, Run{Block: b, From: i, N: n})
				return true
			})
			if !slices.Equal(page.Records, want) {
				t.Fatalf("%q from %q: %d records, want %d", prefix, start, len(page.Records), len(want))
			}
			if err := checkEncodings(page); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// held returns the sum of the sizes of the encodings that still exist.
func (c *encodingCache) held() int64 {
	var sum int64
	for e := c.order.Front(); e != nil; e = e.Next() {
		if p := e.Value.(*cachedEncoding).encoding.Value(); p != nil {
			sum += p.bytes()
		}
	}
	return sum
}

// TestEncodings checks which records are encoded again after a change, and that part of the
// encodings stays cached when lists are larger than the cache.
func TestEncodings(t *testing.T) {
	made := 0
	j := &Joiner{Form: Form{Variant: "counted"}, Separator: ",", Append: func(dst []byte, r *Record) ([]byte, error) {
		made++
		return append(dst, r.Bytes()...), nil
	}}
	scan := func(b blocks) int {
		made = 0
		b.ascend("", "", func(b *Block, _, _ int) bool {
			if _, _, err := b.Encoded(j, nil); err != nil {
				t.Error(err)
			}
			return true
		})
		return made
	}
	filled := func(maxBytes int64) *tree {
		cache := newEncodingCache(maxBytes)
		cache.blockRecords = 10
		tree := newTree(cache)
		for i := range 1000 {
			key := fmt.Sprintf("t%03d", i)
			tree.put(NewRecord(key, int64(i), []byte(key), Attrs{}, nil, nil))
		}
		return tree
	}
	tree := filled(1 << 20)
	if n := scan(tree.snapshot()); n != 1000 {
		t.Errorf("first scan made %d", n)
	}
	tree.put(NewRecord("t500", 2000, []byte("changed"), Attrs{}, nil, nil))
	tree.put(NewRecord("t5001", 2001, []byte("new"), Attrs{}, nil, nil))
	tree.delete("t700")
	if n := scan(tree.snapshot()); n != 2 {
		t.Errorf("scan after two writes and a deletion made %d", n)
	}
	if n := scan(tree.snapshot()); n != 0 {
		t.Errorf("scan after no change made %d", n)
	}
	tree = filled(16 << 10)
	scan(tree.snapshot())
	if n := scan(tree.snapshot()); n < 100 || n > 900 {
		t.Errorf("scan that is larger than the cache made %d again", n)
	}
}

// TestEncodingFails checks that Encoded returns the error of an encoder and keeps nothing.
func TestEncodingFails(t *testing.T) {
	tree := newTree(newEncodingCache(1 << 20))
	tree.put(NewRecord("a", 1, nil, Attrs{}, nil, nil))
	broken, fail := errors.New("broken"), true
	j := &Joiner{Append: func(dst []byte, r *Record) ([]byte, error) {
		if fail {
			return nil, broken
		}
		return append(dst, r.Key...), nil
	}}
	b := tree.snapshot().list[0]
	if _, _, err := b.Encoded(j, nil); !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := b.Deflated(j); !errors.Is(err, broken) {
		t.Error(err)
	}
	fail = false
	if encoded, _, err := b.Encoded(j, nil); err != nil || string(encoded) != "a" {
		t.Errorf("%q %v", encoded, err)
	}
}
