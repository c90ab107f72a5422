// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/openapi"
	"keelson.dev/apiserver/resource"
)

// TestDocumentsLeaveLibraryAlone checks that making a document does not modify the descriptions of
// the library's types, which the whole process shares.
func TestDocumentsLeaveLibraryAlone(t *testing.T) {
	row := resource.Of[corev1.ConfigMapList](resource.Kind[*corev1.ConfigMap]{Version: "v1",
		Resource: "configmaps", Kind: "ConfigMap", Namespaced: true})
	defs, err := openapi.Parse(nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(metav1.ListOptions{}.SwaggerDoc())
	if _, err := openapi.NewPart(defs, "", "v1", row, false); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(before, metav1.ListOptions{}.SwaggerDoc()) {
		t.Error("the descriptions of ListOptions have changed")
	}
}

// TestConnectors checks the operations of subresources that connect to a process: one operation for
// each method, the fields of the options as parameters, and a response of any type.
func TestConnectors(t *testing.T) {
	options := schema.GroupVersionKind{Version: "v1", Kind: "PodExecOptions"}
	row := resource.Of[corev1.PodList](resource.Kind[*corev1.Pod]{
		Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true,
		Subresources: []resource.Sub[*corev1.Pod]{
			{Subresource: resource.Subresource{Name: "exec", Traffic: resource.Stream,
				Verbs: []string{"create", "get"}, Kind: options}},
			{Subresource: resource.Subresource{Name: "proxy", Traffic: resource.Proxied, Verbs: []string{"get"}, Kind: options}},
		},
	})
	defs, err := openapi.Parse(
		[]byte(`{"x.PodExecOptions":{"properties":{"kind":{"type":"string"},"command":{"type":"array"},"tty":{"type":"boolean"}},
		"x-kubernetes-group-version-kind":[{"group":"","version":"v1","kind":"PodExecOptions"}]}}`), 3)
	if err != nil {
		t.Fatal(err)
	}
	data, err := openapi.V3(defs, "v1.36.0", "", "v1", []*resource.Row{row})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	const item = "/api/v1/namespaces/{namespace}/pods/{name}"
	for path, methods := range map[string][]string{
		item + "/exec":         {"get", "parameters", "post"},
		item + "/proxy/{path}": {"get", "head", "options", "parameters"},
	} {
		if have := slices.Sorted(maps.Keys(doc.Paths[path])); !slices.Equal(have, methods) {
			t.Errorf("%s: %q, want %q", path, have, methods)
		}
	}
	exec := doc.Paths[item+"/exec"]
	for part, want := range map[string]string{
		"get":        `"operationId":"connectCoreV1GetNamespacedPodExec"`,
		"post":       `"content":{"*/*":{"schema":{"type":"string"}}}`,
		"parameters": `"name":"tty"`,
	} {
		if !bytes.Contains(exec[part], []byte(want)) {
			t.Errorf("%s of exec is %s, want %s in it", part, exec[part], want)
		}
	}
	if bytes.Contains(exec["parameters"], []byte(`"kind"`)) || !bytes.Contains(exec["get"], []byte(`"tags":["core_v1"]`)) {
		t.Errorf("%s", exec)
	}
}

// TestDefinitionsOfOneName checks that a custom resource whose definition would have the name of a
// built-in one gets another name in the v2 document, where both are, and keeps the name in the v3
// document of its group version. The built-in definition stays as it is.
func TestDefinitionsOfOneName(t *testing.T) {
	const builtIn = `{"type":"object","description":"built-in","x-kubernetes-group-version-kind":` +
		`[{"group":"apps","version":"v1","kind":"Deployment"}]}`
	custom := []byte(`{"type":"object","description":"custom"}`)
	apps := resource.Of[appsv1.DeploymentList](resource.Kind[*appsv1.Deployment]{
		Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment"})
	row := resource.Of[appsv1.DeploymentList](resource.Kind[*appsv1.Deployment]{
		Group: "apps.api.k8s.io", Version: "v1", Resource: "deployments", Kind: "Deployment"})
	described := func(defs map[string]json.RawMessage) map[string]string {
		out := map[string]string{}
		for name, def := range defs {
			var d struct{ Description string }
			if err := json.Unmarshal(def, &d); err != nil {
				t.Fatal(err)
			}
			out[name] = d.Description
		}
		return out
	}

	defs, err := openapi.Parse([]byte(`{"io.k8s.api.apps.v1.Deployment":`+builtIn+`}`), 2)
	if err != nil {
		t.Fatal(err)
	}
	sum := openapi.NewSum(0)
	for range 2 { // the definition is made again if the resource changes
		if err := defs.AddKind(row, "v1", custom); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []*resource.Row{row, apps} {
		part, err := openapi.NewPart(defs, r.Group, "v1", r, r == row)
		if err != nil {
			t.Fatal(err)
		}
		sum.Add(part)
	}
	data, err := sum.Document(defs, "v1.37.0")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(data, []byte(`"io.k8s.api.apps.v1.Deployment":`)); n != 1 {
		t.Errorf("the document has the built-in definition %d times", n)
	}
	var v2 struct{ Definitions map[string]json.RawMessage }
	if err := json.Unmarshal(data, &v2); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"io.k8s.api.apps.v1.Deployment":     "built-in",
		"io.k8s.api.apps.v1.Deployment_v2":  "custom",
		"io.k8s.api.apps.v1.DeploymentList": "DeploymentList is a list of Deployment",
	}
	if got := described(v2.Definitions); !maps.Equal(got, want) {
		t.Errorf("v2 definitions %v, want %v", got, want)
	}
	if ref := []byte(`"$ref":"#/definitions/io.k8s.api.apps.v1.Deployment_v2"`); !bytes.Contains(
		v2.Definitions["io.k8s.api.apps.v1.DeploymentList"], ref) {
		t.Errorf("the list does not refer to the custom resource: %s", v2.Definitions)
	}

	if defs, err = openapi.Parse([]byte(`{"io.k8s.api.apps.v1.Deployment":`+builtIn+`}`), 3); err != nil {
		t.Fatal(err)
	}
	if err := defs.AddKind(row, "v1", custom); err != nil {
		t.Fatal(err)
	}
	if data, err = openapi.V3(defs, "v1.37.0", row.Group, "v1", []*resource.Row{row}); err != nil {
		t.Fatal(err)
	}
	var v3 struct {
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal(data, &v3); err != nil {
		t.Fatal(err)
	}
	want = map[string]string{
		"io.k8s.api.apps.v1.Deployment":     "custom",
		"io.k8s.api.apps.v1.DeploymentList": "DeploymentList is a list of Deployment",
	}
	if got := described(v3.Components.Schemas); !maps.Equal(got, want) {
		t.Errorf("v3 schemas %v, want %v", got, want)
	}
}
