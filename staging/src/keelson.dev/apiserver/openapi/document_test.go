// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"

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
