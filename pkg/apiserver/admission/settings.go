// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// decodeSettings decodes the settings of a plugin, an object with the given group and kind
// Configuration. If settings is nil, it returns empty unchanged. As in Kubernetes, it ignores
// unknown fields.
func decodeSettings[T runtime.Object](settings io.Reader, group schema.GroupVersion, empty T) (T, error) {
	if settings == nil {
		return empty, nil
	}
	data, err := io.ReadAll(settings)
	if err != nil {
		return empty, fmt.Errorf("configuration: %w", err)
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(group.WithKind("Configuration"), empty)
	decoded, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return empty, fmt.Errorf("configuration: %w", err)
	}
	found, ok := decoded.(T)
	if !ok {
		return empty, fmt.Errorf("configuration: unexpected type: %T", decoded)
	}
	return found, nil
}
