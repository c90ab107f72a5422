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

// decodeSettings reads a plugin's Configuration of a group; without settings into stays
// as it is. As in Kubernetes, fields that nobody knows are passed over.
func decodeSettings(settings io.Reader, group schema.GroupVersion, into runtime.Object) error {
	if settings == nil {
		return nil
	}
	data, err := io.ReadAll(settings)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(group.WithKind("Configuration"), into)
	_, _, err = serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(data, nil, into)
	return err
}
