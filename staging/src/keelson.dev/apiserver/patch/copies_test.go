// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package patch_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/apiserver/patch"
)

// TestCopies checks that a short patch with copy operations cannot make a document so large that it
// exhausts the memory, and that copies within the limits work.
func TestCopies(t *testing.T) {
	doc := []byte(`{"data":{"a":"` + strings.Repeat("x", 1000) + `"}}`)
	copies := func(n int, from string) []byte {
		var ops []string
		for i := range n {
			ops = append(ops, fmt.Sprintf(`{"op":"copy","from":%q,"path":"/data/c%d"}`, from, i))
		}
		return []byte("[" + strings.Join(ops, ",") + "]")
	}
	for name, tc := range map[string]struct {
		patch []byte
		ok    bool
	}{
		"few":               {copies(10, "/data/a"), true},
		"a hundred":         {copies(100, "/data/a"), true},
		"too many":          {copies(9999, "/data/a"), false},
		"copies of copies":  {copies(40, "/data"), false},
		"within the bounds": {copies(8, "/data"), true},
	} {
		t.Run(name, func(t *testing.T) {
			var patched []byte
			err := patch.JSON(types.JSONPatchType, doc, tc.patch,
				patch.Strict{Mode: metav1.FieldValidationIgnore}, func(b []byte) error {
					patched = b
					return nil
				})
			if (err == nil) != tc.ok {
				t.Fatalf("error %v, want ok %t", err, tc.ok)
			}
			if !tc.ok {
				return
			}
			whole, err := jsonpatch.DecodePatch(tc.patch)
			if err != nil {
				t.Fatal(err)
			}
			if want, err := whole.Apply(doc); err != nil || !bytes.Equal(patched, want) {
				t.Errorf("in steps it is another document than at once; %v", err)
			}
		})
	}
}
