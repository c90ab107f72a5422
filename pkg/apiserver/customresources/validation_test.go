// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// samples is a CustomResourceDefinition whose schema uses all kinds of features of schemas.
const samples = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: samples.stable.example.com}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: samples, singular: sample, kind: Sample}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [must]
            properties:
              must: {type: string, pattern: '^[0-9* /]+$', maxLength: 20}
              replicas: {type: integer, minimum: 0, maximum: 10}
              enum: {type: string, enum: [a, b]}
              set: {type: array, x-kubernetes-list-type: set, maxItems: 5, items: {type: string}}
              map:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [port, proto]
                items: {type: object, required: [port], properties: {port: {type: integer}, proto: {type: string, default: TCP}, name: {type: string, maxLength: 3}}}
              either: {x-kubernetes-int-or-string: true}
              none: {type: string, nullable: true}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
              pod: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object}}}
              date: {type: string, format: date-time}
              one: {type: object, properties: {a: {type: string}, b: {type: string}}, oneOf: [{required: [a]}, {required: [b]}]}
              fixed: {type: string, maxLength: 10, x-kubernetes-validations: [{rule: self == oldSelf, message: fixed is fixed}]}
            x-kubernetes-validations:
            - {rule: "!has(self.replicas) || self.replicas != 7", messageExpression: "'seven ' + 'is taken'", reason: FieldValueForbidden, fieldPath: .replicas}
          status:
            type: object
            properties: {replicas: {type: integer}, phase: {type: string, enum: [x, w]}}
`

func sample(t testing.TB, name, fields string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: *parse[map[string]any](t, fields)}
	for path, value := range map[string]string{"apiVersion": "stable.example.com/v1", "kind": "Sample"} {
		if _, ok := u.Object[path]; !ok {
			u.Object[path] = value
		}
	}
	u.SetName(name)
	return u
}

func (e *env) samples() dynamic.ResourceInterface {
	return e.dynamic.Resource(schema.GroupVersionResource{Group: "stable.example.com", Version: "v1",
		Resource: "samples"}).Namespace("default")
}

// unchecked is the end of an error list: rules are not evaluated after errors of certain types,
// because values may have wrong types.
const unchecked = ", <nil>: Invalid value: null: some validation rules were not checked because the object " +
	"was invalid; correct the existing errors to complete validation]"

// TestRefusals checks that the errors for invalid objects are those of kube-apiserver.
func TestRefusals(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	e.define(t, samples)
	for _, tc := range [][2]string{
		{`{spec: {}}`,
			`[spec.must: Required value` + unchecked},
		{`{spec: {must: null}}`,
			`[spec.must: Required value` + unchecked},
		{`{spec: {must: abc}}`,
			`spec.must: Invalid value: "abc": spec.must in body should match '^[0-9* /]+$'`},
		{`{spec: {must: "111111111111111111111"}}`,
			`[spec.must: Too long: may not be more than 20 bytes` + unchecked},
		{`{spec: {must: "1", replicas: 11}}`,
			`spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10`},
		{`{spec: {must: "1", replicas: -1}}`,
			`[spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0, ` +
				`.spec.replicas: Invalid value: -1: should be a non-negative integer]`},
		{`{spec: {must: "1", enum: c}}`,
			`[spec.enum: Unsupported value: "c": supported values: "a", "b"` + unchecked},
		{`{spec: {must: "1", set: [a, b, a]}}`,
			`spec.set[2]: Duplicate value: "a"`},
		{`{spec: {must: "1", set: [a, b, c, d, e, f]}}`,
			`[spec.set: Too many: 6: must have at most 5 items` + unchecked},
		{`{spec: {must: "1", map: [{port: 1}, {port: 1, proto: TCP}]}}`,
			`spec.map[1]: Duplicate value: {"port":1,"proto":"TCP"}`},
		{`{spec: {must: "1", map: [{name: x}]}}`,
			`[spec.map[0].port: Required value` + unchecked},
		{`{spec: {must: "1", either: 1.5}}`,
			`[spec.either: Invalid value: "number": spec.either in body must be of type integer,string: "number"` +
				unchecked},
		{`{spec: {must: "1", date: yesterday}}`,
			`[spec.date: Invalid value: "yesterday": spec.date in body must be of type date-time: "yesterday"` +
				unchecked},
		{`{spec: {must: "1", one: {a: x, b: z}}}`,
			`<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives`},
		{`{spec: {must: "1", replicas: 7}}`,
			`spec.replicas: Forbidden: seven is taken`},
		{`{spec: {must: "1", pod: {kind: Pod}}}`,
			`[spec.pod.apiVersion: Required value` + unchecked},
		{`{kind: Other, spec: {must: "1"}}`,
			`kind: Invalid value: "Other": must be Sample`},
		{`{kind: Other, spec: {replicas: 7, set: [a, a]}}`,
			`[kind: Invalid value: "Other": must be Sample, spec.set[1]: Duplicate value: "a", ` +
				`spec.replicas: Forbidden: seven is taken]`},
	} {
		fields, want := tc[0], tc[1]
		u := sample(t, "a", fields)
		_, err := e.samples().Create(t.Context(), u, metav1.CreateOptions{})
		want = fmt.Sprintf(`%s.stable.example.com "a" is invalid: %s`, u.GetKind(), want)
		if !apierrors.IsInvalid(err) || err.Error() != want {
			t.Errorf("%s: %s", fields, cmp.Diff(want, fmt.Sprint(err)))
		}
	}
	for fields, want := range map[string]string{
		`{metadata: {labels: {a: 5}}, spec: {must: "1"}}`: `Sample in version "v1" cannot be handled ` +
			`as a Sample: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string`,
		`{apiVersion: stable.example.com/v2, spec: {must: "1"}}`: `the API version in the data ` +
			`(stable.example.com/v2) does not match the expected API version (stable.example.com/v1)`,
	} {
		if _, err := e.samples().Create(t.Context(), sample(t, "a", fields),
			metav1.CreateOptions{}); !apierrors.IsBadRequest(err) || err.Error() != want {
			t.Errorf("%s: %s", fields, cmp.Diff(want, fmt.Sprint(err)))
		}
	}
}

// TestUpdates checks rules that compare with the old object. It also checks that an update may keep
// a value that a changed schema no longer allows.
func TestUpdates(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	crd := e.define(t, samples)
	ctx := t.Context()
	if _, err := e.samples().Create(ctx,
		sample(t, "a", `{spec: {must: "1", fixed: x, map: [{port: 1, name: abc}]}}`), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(doc string, sub ...string) (*unstructured.Unstructured, error) {
		return e.samples().Patch(ctx, "a", types.MergePatchType, []byte(doc), metav1.PatchOptions{}, sub...)
	}
	for doc, want := range map[string]string{
		`{"spec":{"fixed":"y"}}`: `Sample.stable.example.com "a" is invalid: spec.fixed: Invalid value: ` +
			`"y": fixed is fixed`,
		`{"spec":{"replicas":7}}`:   `Sample.stable.example.com "a" is invalid: spec.replicas: Forbidden: seven is taken`,
		`{"metadata":{"name":"b"}}`: `the name of the object (b) does not match the name on the URL (a)`,
	} {
		if _, err := patch(doc); err == nil || err.Error() != want {
			t.Errorf("%s: %v", doc, err)
		}
	}
	if got, err := patch(`{"status":{"phase":"x"},"spec":{"replicas":2}}`); err != nil ||
		got.Object["status"] != nil || got.GetGeneration() != 2 {
		t.Errorf("the status through the object: %v, error %v", got, err)
	}
	if got, err := patch(`{"status":{"phase":"x"},"spec":{"replicas":3}}`, "status"); err != nil ||
		got.GetGeneration() != 2 || number(got, "spec", "replicas") != 2 {
		t.Errorf("the spec through the status: %v, error %v", got, err)
	}
	if _, err := patch(`{"status":{"phase":"z"}}`, "status"); err == nil ||
		!strings.Contains(err.Error(), `status.phase: Unsupported value: "z": supported values: "x", "w"`) {
		t.Errorf("a bad status: %v", err)
	}
	// Change the schema so that the name in the stored object is too long.
	if _, err := e.crds.ApiextensionsV1().CustomResourceDefinitions().Patch(ctx, crd.Name, types.JSONPatchType,
		[]byte(
			`[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec`+
				`/properties/map/items/properties/name/maxLength","value":2}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		_, err := e.samples().Create(ctx, sample(t, "b", `{spec: {must: "1", map: [{port: 1, name: abc}]}}`),
			metav1.CreateOptions{DryRun: []string{"All"}})
		return apierrors.IsInvalid(err)
	})
	if _, err := patch(`{"spec":{"must":"2"}}`); err != nil {
		t.Errorf("a change elsewhere: %v", err)
	}
	if _, err := patch(`{"spec":{"map":[{"port":1,"name":"abcd"}]}}`); !apierrors.IsInvalid(err) {
		t.Errorf("a change of what is wrong: %v", err)
	}
}

func number(u *unstructured.Unstructured, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, path...)
	return n
}

// TestFieldValidation checks that unknown fields are dropped, and that they cause an error,
// warnings or nothing, as the parameter fieldValidation requires.
func TestFieldValidation(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	e.define(t, samples)
	const body = `{"apiVersion":"stable.example.com/v1","kind":"Sample","top":1,"metadata":{"name":"a","odd":1},
		"spec":{"must":"1","must":"2","junk":1,"free":{"x":1},"map":[{"port":1,"y":2}],"none":null}}`
	post := func(mode string) (*unstructured.Unstructured, []string) {
		return e.post(t, "/apis/stable.example.com/v1/namespaces/default/samples?dryRun=All&fieldValidation="+mode, body)
	}
	got, _ := post("Strict")
	const want = `Sample in version "v1" cannot be handled as a Sample: strict decoding error: duplicate ` +
		`field "spec.must", ` +
		`unknown field "metadata.odd", unknown field "spec.junk", unknown field "spec.map[0].y", unknown field "top"`
	if got.Object["message"] != want {
		t.Error(cmp.Diff(want, got.Object["message"]))
	}
	spec := map[string]any{
		"must": "2", "free": map[string]any{"x": int64(1)}, "none": nil,
		"map": []any{map[string]any{"port": int64(1), "proto": "TCP"}},
	}
	for mode, warnings := range map[string]int{"Warn": 5, "Ignore": 0} {
		got, told := post(mode)
		if diff := cmp.Diff(spec, got.Object["spec"]); diff != "" || got.Object["top"] != nil {
			t.Errorf("%s: %s", mode, diff)
		}
		if len(told) != warnings {
			t.Errorf("%s: told %q", mode, told)
		}
	}
}

// post sends a body in JSON. It returns the object in the answer and the warnings.
func (e *env) post(t *testing.T, path, body string) (*unstructured.Unstructured, []string) {
	t.Helper()
	client, err := rest.HTTPClientFor(e.Config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	doc, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(doc); err != nil {
		t.Fatal(err)
	}
	return out, answer.Header.Values("Warning")
}

// TestApply checks that apply merges lists by their keys, and that it returns a conflict for fields
// that another manager owns.
func TestApply(t *testing.T) {
	e := newEnv(t, testserver.Options{})
	e.define(t, samples)
	ctx := t.Context()
	apply := func(who, fields string, force bool) (*unstructured.Unstructured, error) {
		return e.samples().Apply(ctx, "a", sample(t, "a", fields), metav1.ApplyOptions{FieldManager: who, Force: force})
	}
	if _, err := apply("one", `{spec: {must: "1", map: [{port: 1, name: a}], set: [x]}}`, false); err != nil {
		t.Fatal(err)
	}
	got, err := apply("two", `{spec: {map: [{port: 2}], set: [w]}}`, false)
	if err != nil {
		t.Fatal(err)
	}
	ports, _, _ := unstructured.NestedSlice(got.Object, "spec", "map")
	set, _, _ := unstructured.NestedStringSlice(got.Object, "spec", "set")
	if len(ports) != 2 || fmt.Sprint(set) != "[x w]" {
		t.Errorf("merged %v %v", ports, set)
	}
	if _, err := apply("two", `{spec: {must: "2", map: [{port: 2}]}}`, false); !apierrors.IsConflict(err) {
		t.Errorf("another's field: %v", err)
	}
	if got, err = apply("two", `{spec: {must: "2", map: [{port: 2}]}}`, true); err != nil {
		t.Fatal(err)
	}
	if set, _, _ = unstructured.NestedStringSlice(got.Object, "spec", "set"); fmt.Sprint(set) != "[x]" {
		t.Errorf("what is applied no more is gone: %v", set)
	}
	if _, err := apply("two", `{spec: {junk: 1}}`, true); err == nil ||
		!strings.Contains(err.Error(), ".spec.junk: field not declared in schema") {
		t.Errorf("a field that nobody knows: %v", err)
	}
}
