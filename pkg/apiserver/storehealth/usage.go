// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storehealth

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"keelson.dev/apiserver/store/kv"
	"keelson.dev/keelson/pkg/apiserver/storehealth/report"
)

// A page has about pageBytes bytes if its values are as large as those of the page before. Large values
// may follow small ones, so a page has at most twice as many keys as the page before, and at most maxPage
// keys. This bounds the memory: a value has at most 1.5 MiB. More pages would cost more time, because for
// each one etcd counts all keys after its beginning.
const (
	firstPage, maxPage = 16, 256
	pageBytes          = 4 << 20
)

// measureTimeout limits one measurement.
const measureTimeout = 30 * time.Second

// ErrMeasuring says that the database is being measured for another caller.
var ErrMeasuring = errors.New("the usage of the database is being measured already")

// A Locator returns the resource and the namespace of the object with a key, as strings that do not
// refer to the memory of key. The namespace is empty for objects without one.
type Locator func(key string) (resource, namespace string)

// tally is the usage of a database by name.
type tally map[string]*report.Share

func (t tally) add(name string, bytes int64) {
	if t[name] == nil {
		t[name] = &report.Share{Name: name}
	}
	t[name].Keys++
	t[name].Bytes += bytes
}

// sorted returns the shares, the largest first.
func (t tally) sorted() []report.Share {
	out := make([]report.Share, 0, len(t))
	for _, s := range t {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b report.Share) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// measure returns the usage of the keeper's database. One measurement runs at a time.
func (k *Keeper) measure(ctx context.Context) (*report.Usage, error) {
	if !k.measuring.TryLock() {
		return nil, ErrMeasuring
	}
	defer k.measuring.Unlock()
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	return measure(ctx, k.KV, k.Root, k.Locate)
}

// measure reads all keys with a prefix, page by page. If it cannot read all of them, it returns the
// usage of those that it has read, marked as incomplete, and the error.
func measure(ctx context.Context, db kv.Store, prefix string, locate Locator) (*report.Usage, error) {
	namespaces, resources, usage := tally{}, tally{}, &report.Usage{}
	var failed error
	for start, limit := prefix, int64(firstPage); ; {
		page, err := db.Range(ctx, kv.RangeOptions{Prefix: prefix, Start: start, Limit: limit})
		if err != nil {
			usage.Incomplete, failed = true, err
			break
		}
		var read int64
		for i := range page.Items {
			item := &page.Items[i]
			size := int64(len(item.Key) + len(item.Value))
			read += size
			resource, namespace := locate(item.Key)
			resources.add(resource, size)
			if namespace != "" {
				namespaces.add(namespace, size)
			}
		}
		n := int64(len(page.Items))
		usage.Keys, usage.Bytes = usage.Keys+n, usage.Bytes+read
		if n == 0 || n == page.Count {
			break
		}
		start = page.Items[n-1].Key + "\x00"
		limit = min(kv.NextLimit(page.Items, pageBytes, maxPage), 2*limit)
	}
	usage.Namespaces, usage.Resources = namespaces.sorted(), resources.sorted()
	return usage, failed
}

// grown returns the namespace that has grown most between two measurements, with its growth. If the
// first one is missing, or no namespace has grown, it returns the largest namespace, with growth 0.
func grown(before, now *report.Usage) (share report.Share, growth int64) {
	if len(now.Namespaces) == 0 {
		return report.Share{}, 0
	}
	share = now.Namespaces[0]
	if before == nil {
		return share, 0
	}
	was := map[string]int64{}
	for _, s := range before.Namespaces {
		was[s.Name] = s.Bytes
	}
	for _, s := range now.Namespaces {
		if s.Bytes-was[s.Name] > growth {
			share, growth = s, s.Bytes-was[s.Name]
		}
	}
	return share, growth
}
