// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"keelson.dev/apiserver/registry"
)

// TestStoredKinds checks that the stored bytes name the kind of the object, so that an object under
// the wrong key is detected.
func TestStoredKinds(t *testing.T) {
	t.Parallel()
	row := rowOf(t, "/configmaps")
	row.Scheme = clientscheme.Scheme
	for name, tc := range map[string]struct{ data, want string }{
		"own kind": {`{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"b"}}`, ""},
		"no kind":  {`{"data":{"a":"b"}}`, ""},
		"another kind": {`{"kind":"Secret","apiVersion":"v1"}`,
			"converting (v1.Secret) to (core.ConfigMap): unknown conversion"},
		"unknown kind": {`{"kind":"Zork","apiVersion":"v1"}`,
			`no kind "Zork" is registered for version "v1" in scheme "` + clientscheme.Scheme.Name() + `"`},
		"unknown version": {`{"kind":"ConfigMap","apiVersion":"v9"}`,
			`no kind "ConfigMap" is registered for version "v9" in scheme "` + clientscheme.Scheme.Name() + `"`},
		"truncated JSON": {`{"kind":"ConfigMap","apiVersion":"v1"`,
			"couldn't get version/kind; json parse error: unexpected end of JSON input"},
		"another type": {`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":5}}`,
			"json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string"},
		"kind in another case": {`{"kind":"ConfigMap","apiVersion":"v1","Data":5}`, ""},
		"empty":                {"k8s\x00", "empty body"},
		"encrypted": {"k8s:enc:aescbc:v1:key:x",
			"identity transformer tried to read encrypted data"},
		"truncated envelope": {"k8s\x00\xff\xff\xff", "unexpected EOF"},
		"truncated protobuf": {"k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12\x03\n\x05a", "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if _, err := registry.Codec(row).Decode([]byte(tc.data), 1); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
		})
	}
}
