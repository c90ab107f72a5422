// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/store"
)

// TestItemsEndWithTheRequest checks that a list ends when its request ends, even if a slow webhook
// has to convert each of its objects.
func TestItemsEndWithTheRequest(t *testing.T) {
	page := &store.Page{Records: make([]*store.Record, 100)}
	for name, one := range map[string]bool{"remembered": true, "converted": false} {
		ctx, cancel := context.WithCancel(t.Context())
		made := 0
		item := func() ([]byte, error) {
			made++
			cancel() // the request ends during the conversion of the first object
			return []byte("{}"), nil
		}
		j := &items{Joiner: store.Joiner{Separator: ",", Append: func(dst []byte, _ *store.Record) ([]byte, error) {
			text, err := item()
			return append(dst, text...), err
		}}}
		if one {
			j.one = func(*store.Record) ([]byte, error) { return item() }
		}
		pools := newPools(nil)
		a := pools.answer(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil),
			http.StatusOK, negotiate.JSON)
		if err := a.items(page, j, nil); !errors.Is(err, context.Canceled) || made != 1 {
			t.Errorf("%s: %d items, error %v", name, made, err)
		}
		cancel()
	}
}
