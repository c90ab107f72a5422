// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command openapi writes the OpenAPI v2 and v3 definitions of the built-in kinds as compressed
// JSON. Its input is the package gen, which openapi-gen generates from k8s.io/api and
// keelson.dev/api. That package is not committed.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	admission "k8s.io/api/admission/v1"
	admissionbeta "k8s.io/api/admission/v1beta1"
	imagepolicy "k8s.io/api/imagepolicy/v1alpha1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsbeta "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationbeta "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	scheduling "keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/keelson/hack/openapi/gen"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: openapi DIRECTORY")
	}
	kinds, err := extensions()
	if err != nil {
		return err
	}
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range gen.GetOpenAPIDefinitions(func(string) spec.Ref { return spec.Ref{} }) {
			if !yield(name) {
				return
			}
		}
	})
	definitionName := func(name string) (string, spec.Extensions) { return name, kinds[name] }
	v2, err := builder.BuildOpenAPIDefinitionsForResources(&common.Config{
		Info: &spec.Info{}, GetDefinitions: gen.GetOpenAPIDefinitions, GetDefinitionName: definitionName,
	}, names...)
	if err != nil {
		return fmt.Errorf("v2: %w", err)
	}
	v3, err := builder3.BuildOpenAPIDefinitionsForResources(&common.OpenAPIV3Config{
		Info: &spec.Info{}, GetDefinitions: gen.GetOpenAPIDefinitions, GetDefinitionName: definitionName,
	}, names...)
	if err != nil {
		return fmt.Errorf("v3: %w", err)
	}
	if err := write(filepath.Join(args[0], "v2.json.gz"), handler.PruneDefaults(v2.Definitions)); err != nil {
		return err
	}
	return write(filepath.Join(args[0], "v3.json.gz"), v3)
}

// write writes v as compressed JSON to a file. The same input always gives the same bytes.
func write(path string, v any) error {
	doc, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(doc); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// extensions returns the x-kubernetes-group-version-kind extension of each definition, by name.
func extensions() (map[string]spec.Extensions, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensions.AddToScheme, apiextensionsbeta.AddToScheme, apiregistration.AddToScheme,
		apiregistrationbeta.AddToScheme, admission.AddToScheme, admissionbeta.AddToScheme, imagepolicy.AddToScheme,
		scheduling.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	type named interface{ OpenAPIModelName() string }
	kinds := make(map[string][]map[string]any)
	for gvk, t := range s.AllKnownTypes() {
		n, ok := reflect.New(t).Interface().(named)
		if !ok || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		name := n.OpenAPIModelName()
		kinds[name] = append(kinds[name], map[string]any{"group": gvk.Group, "kind": gvk.Kind, "version": gvk.Version})
	}
	out := make(map[string]spec.Extensions, len(kinds))
	for name, list := range kinds {
		slices.SortFunc(list, func(a, b map[string]any) int {
			return cmp.Or(strings.Compare(a["group"].(string), b["group"].(string)),
				strings.Compare(a["version"].(string), b["version"].(string)),
				strings.Compare(a["kind"].(string), b["kind"].(string)))
		})
		gvks := make([]any, len(list))
		for i := range list {
			gvks[i] = list[i]
		}
		out[name] = spec.Extensions{"x-kubernetes-group-version-kind": gvks}
	}
	return out, nil
}
