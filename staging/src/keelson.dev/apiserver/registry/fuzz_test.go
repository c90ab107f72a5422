// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// FuzzStored decodes arbitrary bytes as a stored object. What can be decoded must survive encoding
// and decoding.
func FuzzStored(f *testing.F) {
	row := resource.Of[corev1.ConfigMapList](
		resource.Kind[*corev1.ConfigMap]{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true},
	)
	codec := registry.Codec(row)
	whole, err := codec.Encode(
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"b": "c"}}, Data: map[string]string{"d": "e"},
		},
	)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`))
	f.Add([]byte("k8s\x00"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		obj, err := codec.Decode(data, 7)
		if err != nil {
			return
		}
		if obj.GetResourceVersion() != "7" {
			t.Errorf("resource version %q", obj.GetResourceVersion())
		}
		again, err := codec.Encode(obj)
		if err != nil {
			t.Fatalf("encode what was decoded: %v", err)
		}
		back, err := codec.Decode(again, 7)
		if err != nil || back.GetName() != obj.GetName() || len(back.GetLabels()) != len(obj.GetLabels()) {
			t.Errorf("%q: read back as %v, %v", data, back, err)
		}
	})
}
