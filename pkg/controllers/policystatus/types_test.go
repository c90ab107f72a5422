// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// answering returns the same error for every requested type.
type answering struct {
	meta.ResettableRESTMapper
	err error
}

func (a answering) KindsFor(schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return nil, a.err
}
func (a answering) ResolveSchema(schema.GroupVersionKind) (*spec.Schema, error) { return nil, a.err }

// TestFailure checks that a missing type does not set failure, and that a failed request does.
func TestFailure(t *testing.T) {
	busy := errors.New("busy")
	for name, tc := range map[string]struct {
		kinds, schema, want error
	}{
		"all there":               {},
		"no such resource":        {kinds: &meta.NoResourceMatchError{}},
		"no schema":               {schema: fmt.Errorf("kind: %w", resolver.ErrSchemaNotFound)},
		"discovery does not work": {kinds: busy, want: busy},
		"schemas are not served":  {schema: busy, want: busy},
		"first found, then not":   {kinds: busy, schema: resolver.ErrSchemaNotFound, want: busy},
	} {
		t.Run(name, func(t *testing.T) {
			k := &knownTypes{ResettableRESTMapper: answering{err: tc.kinds}, schemas: answering{err: tc.schema}}
			if _, err := k.KindsFor(schema.GroupVersionResource{}); !errors.Is(err, tc.kinds) {
				t.Errorf("kinds: %v, want %v", err, tc.kinds)
			}
			if _, err := k.ResolveSchema(schema.GroupVersionKind{}); !errors.Is(err, tc.schema) {
				t.Errorf("schema: %v, want %v", err, tc.schema)
			}
			if !errors.Is(k.failure, tc.want) || tc.want == nil && k.failure != nil {
				t.Errorf("failure: %v, want %v", k.failure, tc.want)
			}
		})
	}
}
