// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestPatchToAnother checks the errors for patches that change the name or kind of an object. If a
// patch has several errors, Kubernetes' order decides which is returned.
func TestPatchToAnother(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	e.define(t, endpoints)
	places := e.dynamic.Resource(places("v1")).Namespace("default")
	if _, err := places.Create(t.Context(), place("p", "v1", map[string]any{"host": "a"}),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const merge, ops, apply = types.MergePatchType, types.JSONPatchType, types.ApplyPatchType
	for name, tc := range map[string]struct {
		kind        types.PatchType
		patch, want string // want is empty if there is no error
	}{
		"another kind": {merge, `{"apiVersion":"apps/v1","kind":"Deployment"}`,
			`Deployment.apps "p" is invalid: [kind: Invalid value: "Deployment": must be Place, apiVersion: ` +
				`Invalid value: "apps/v1": must be stable.example.com/v1]`},
		"another kind of the group": {merge, `{"kind":"Other"}`,
			`Other.stable.example.com "p" is invalid: kind: Invalid value: "Other": must be Place`},
		"another group": {merge, `{"apiVersion":"apps/v1"}`,
			`Place.apps "p" is invalid: apiVersion: Invalid value: "apps/v1": must be stable.example.com/v1`},
		"another version": {merge, `{"apiVersion":"stable.example.com/v9"}`,
			`Place.stable.example.com "p" is invalid: apiVersion: Invalid value: "stable.example.com/v9": ` +
				`must be stable.example.com/v1`},
		"another version, strict": {merge, `{"apiVersion":"stable.example.com/v9","host":"b"}`,
			`must be stable.example.com/v1`},
		"no version": {merge, `{"apiVersion":null}`,
			`Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'`},
		"group without a version": {merge, `{"apiVersion":"stable.example.com/"}`,
			`Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'`},
		"another group without a version": {ops,
			`[{"op":"replace","path":"/apiVersion","value":"apps/"},{"op":"replace","path":"/kind","value":"Other"}]`,
			`Object 'apiVersion' is missing in 'object has no apiVersion field'`},
		"invalid version": {merge, `{"apiVersion":5}`,
			`couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct ` +
				`field .apiVersion of type string`},
		"another name": {merge, `{"metadata":{"name":"q"}}`,
			`the name of the object (q) does not match the name on the URL (p)`},
		"another kind and name": {merge,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"q"}}`,
			`the name of the object (q) does not match the name on the URL (p)`},
		"another namespace": {merge, `{"metadata":{"namespace":"q"}}`,
			`the namespace of the provided object does not match the namespace sent on the request`},
		"another version and uid": {merge, `{"apiVersion":"v9","metadata":{"uid":"q"}}`,
			`Place "p" is invalid: [metadata.uid: Invalid value: "q": field is immutable, apiVersion: ` +
				`Invalid value: "v9": must be stable.example.com/v1]`},
		"another version and a validation error": {merge, `{"apiVersion":"v9","host":"no"}`,
			`Place "p" is invalid: [apiVersion: Invalid value: "v9": must be stable.example.com/v1, host: ` +
				`Invalid value: "no": no is none]`},
		"another uid": {merge, `{"metadata":{"uid":"q"}}`,
			`metadata.uid: Invalid value: "q": field is immutable`},
		"another kind by JSON patch": {ops,
			`[{"op":"replace","path":"/kind","value":"List"},{"op":"replace","path":"/apiVersion","value":"v1"}]`,
			`List "p" is invalid: [kind: Invalid value: "List": must be Place, apiVersion: Invalid ` +
				`value: "v1": must be stable.example.com/v1]`},
		"another name by JSON patch": {ops,
			`[{"op":"replace","path":"/kind","value":"List"},{"op":"replace","path":"/metadata/name","value":"q"}]`,
			`the name of the object (q) does not match the name on the URL (p)`},
		"apply of another kind": {apply,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"p"}}`,
			`invalid object type: apps/v1, Kind=Deployment`},
		"apply of another name": {apply,
			`{"apiVersion":"stable.example.com/v1","kind":"Place","metadata":{"name":"q"}}`,
			`the name of the object (q) does not match the name on the URL (p)`},
		"same kind and name": {merge, `{"apiVersion":"stable.example.com/v1",` +
			`"kind":"Place","metadata":{"name":"p","namespace":"default"},"host":"b"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := places.Patch(t.Context(), "p", tc.kind, []byte(tc.patch),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: "f"})
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}
