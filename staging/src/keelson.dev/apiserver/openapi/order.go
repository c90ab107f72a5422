// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/json"
	"fmt"

	"k8s.io/kube-openapi/pkg/spec3"
)

// operationKind is the kind of an operation's objects. Its members are encoded in this order in the
// paths of a document. The definitions of a document have them in another order.
type operationKind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// ordered encodes a v3 document. The keys are in the order in which Kubernetes' OpenAPI library
// writes them.
func ordered(doc map[string]any) ([]byte, error) {
	raw, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	var out spec3.OpenAPI
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("openapi document: %w", err)
	}
	for _, path := range out.Paths.Paths {
		for _, op := range []*spec3.Operation{path.Get, path.Put, path.Post, path.Delete, path.Options,
			path.Head, path.Patch} {
			if op == nil {
				continue
			}
			if kind, ok := op.Extensions[kindExtension].(map[string]any); ok {
				group, _ := kind["group"].(string)
				version, _ := kind["version"].(string)
				name, _ := kind["kind"].(string)
				op.Extensions[kindExtension] = operationKind{group, version, name}
			}
		}
	}
	return json.Marshal(&out)
}
