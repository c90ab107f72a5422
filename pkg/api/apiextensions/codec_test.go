// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiextensions

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"keelson.dev/apiserver/wire"
)

const oneVersion = `
metadata: {name: foos.example.com, resourceVersion: "7"}
spec:
  group: example.com
  scope: Cluster
  names: {plural: foos, singular: foo, kind: Foo, listKind: FooList}
  conversion: {strategy: None}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
status: {storedVersions: [v1], acceptedNames: {plural: foos, kind: Foo}, conditions: [{type: Established, status: "True"}]}
`

func sample(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(oneVersion), crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

// TestStoredForm checks that the stored form is that of Kubernetes: fields that are equal in all
// versions are at the top of the spec.
func TestStoredForm(t *testing.T) {
	data, err := codec{}.Encode(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1beta1","metadata":{"name":"foos.example.com"`,
		`"version":"v1"`, `"validation":{"openAPIV3Schema"`, `"preserveUnknownFields":false`, "}\n",
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("stored %s lacks %s", data, want)
		}
	}
	if strings.Contains(string(data), "resourceVersion") {
		t.Errorf("stored %s", data)
	}
}

func TestStoredFormsAreRead(t *testing.T) {
	want := sample(t)
	v1beta1, err := codec{}.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	v1 := want.DeepCopy()
	v1.ResourceVersion = ""
	proto, err := wire.NewHeader("apiextensions.k8s.io/v1", "CustomResourceDefinition").Marshal(v1)
	if err != nil {
		t.Fatal(err)
	}
	json, err := yaml.YAMLToJSON([]byte("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition" +
		oneVersion))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"JSON of v1beta1": v1beta1, "protobuf of v1": proto, "JSON of v1": json} {
		got, err := codec{}.Decode(data, 7)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	if _, err := (codec{}).Decode([]byte("{"), 1); err == nil {
		t.Error("garbage was read")
	}
}
