// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/base64"
	"path"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// FuzzContinue decodes arbitrary tokens: none leads out of the list's prefix.
func FuzzContinue(f *testing.F) {
	for _, token := range []string{
		encodeContinue("/ns/a", 7), encodeContinue("a", -1), base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":1,"start":"../../secrets/x"}`)),
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
		if again, rev2, err := decodeContinue(encodeContinue("/"+rest, rev), prefix); err != nil || again != key || rev2 != rev {
			t.Errorf("%q at %d: again %q at %d, %v", key, rev, again, rev2, err)
		}
	})
}
