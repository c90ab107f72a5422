// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/base64"
	"path"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
)

// FuzzContinue checks that no token continues a list outside of its prefix.
func FuzzContinue(f *testing.F) {
	for _, token := range []string{
		encodeContinue("/ns/a", 7), encodeContinue("a", -1),
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":1,"start":"../../secrets/x"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":1,"start":"//a"}`)), "", "!", "bnVsbA",
	} {
		f.Add(token, "ns/")
		f.Add(token, "")
	}
	f.Fuzz(func(t *testing.T, token, prefix string) {
		key, rev, err := decodeContinue(token, prefix)
		if err != nil {
			if !apierrors.IsBadRequest(err) {
				t.Errorf("%v", err)
			}
			return
		}
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok || rev == 0 || path.Clean("/"+rest) != "/"+rest {
			t.Errorf("token %q leads to %q at %d below %q", token, key, rev, prefix)
		}
		if again, rev2, err := decodeContinue(encodeContinue("/"+rest, rev), prefix); err != nil ||
			again != key || rev2 != rev {
			t.Errorf("%q at %d: again %q at %d, %v", key, rev, again, rev2, err)
		}
	})
}

// TestContinueBelowSelectedNamespace checks that keys in continue tokens are relative to the listed
// namespace, not to a namespace that only the field selector requires.
func TestContinueBelowSelectedNamespace(t *testing.T) {
	onEach(t, func(t *testing.T, e *env) {
		ctx := patient(t)
		for _, key := range []string{"a/x", "b/x", "b/y", "c/x"} {
			if _, err := e.store.Create(ctx, key, newThing(namespaceOf(key), nameOf(key)), 0); err != nil {
				t.Fatal(err)
			}
		}
		selected := Predicate{Fields: fields.OneTermEqualSelector("metadata.namespace", "b")}
		page, err := e.store.List(ctx, ListOptions{Predicate: selected, Limit: 1})
		if err != nil || len(page.Records) != 1 || page.Continue != encodeContinue("/b/x\x00", page.Revision) {
			t.Fatalf("%+v, %v", page, err)
		}
		for start, want := range map[string]int{"/a/x\x00": 2, "/b/x\x00": 1, "/c/x": 0} {
			rest, err := e.store.List(ctx, ListOptions{Predicate: selected, Continue: encodeContinue(start, page.Revision)})
			if err != nil || len(rest.Records) != want {
				t.Errorf("from %q: %+v, %v, want %d records", start, rest, err, want)
			}
		}
	})
}
