// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"testing"

	"keelson.dev/apiserver/store/kv"
)

// TestBatchSize checks how many writes are sent in one transaction.
func TestBatchSize(t *testing.T) {
	for name, c := range map[string]struct {
		writes int
		change func(i int, w *kv.Write)
		want   int
	}{
		"few":         {writes: 3, want: 3},
		"many":        {writes: 100, want: 64},
		"same key":    {writes: 9, change: func(i int, w *kv.Write) { w.Key = fmt.Sprint(i / 5 * 5) }, want: 1},
		"conditions":  {writes: 100, change: func(_ int, w *kv.Write) { w.Conditions = make([]kv.Unchanged, 3) }, want: 32},
		"large":       {writes: 9, change: func(_ int, w *kv.Write) { w.Value = make([]byte, 400<<10) }, want: 2},
		"one, larger": {writes: 1, change: func(_ int, w *kv.Write) { w.Value = make([]byte, 2<<20) }, want: 1},
	} {
		all := make([]*kv.Write, c.writes)
		for i := range all {
			all[i] = &kv.Write{Key: fmt.Sprintf("%03d", i)}
			if c.change != nil {
				c.change(i, all[i])
			}
		}
		if got := batchSize(all); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
