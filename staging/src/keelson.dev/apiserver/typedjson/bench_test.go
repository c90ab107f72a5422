// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package typedjson

import (
	_ "embed"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/json"
)

// pod is one as programs create them: two containers, probes, volumes.
//
//go:embed testdata/pod.json
var pod []byte

func BenchmarkDecode(b *testing.B) {
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if findings, err := json.UnmarshalStrict(pod, &corev1.Pod{}); err != nil || len(findings) > 0 {
				b.Fatal(findings, err)
			}
		}
	})
	b.Run("typedjson", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if findings, err := Unmarshal(pod, &corev1.Pod{}, true); err != nil || len(findings) > 0 {
				b.Fatal(findings, err)
			}
		}
	})
}
