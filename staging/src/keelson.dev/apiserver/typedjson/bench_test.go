// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package typedjson

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/json"
)

// pod is a typical pod, as controllers create it, with two containers, probes and volumes.
//
//go:embed testdata/pod.json
var pod []byte

// podAndName returns a copy of pod, and the digits at the end of the pod's name in that copy.
func podAndName() (doc, digits []byte) {
	const name = "web-7d4b9c6f5d-000007"
	doc = slices.Clone(pod)
	end := strings.Index(string(doc), name) + len(name)
	return doc, doc[end-6 : end]
}

// number writes n into digits.
func number(digits []byte, n int) { copy(digits, fmt.Sprintf("%06d", n%1e6)) }

// TestAllocations bounds the number of allocations for reading another pod of the same shape.
func TestAllocations(t *testing.T) {
	doc, name := podAndName()
	n := 0
	got := testing.AllocsPerRun(1000, func() {
		n++
		number(name, n)
		if !Read(doc, &corev1.Pod{}) {
			t.Fatal("left to the library")
		}
	})
	if got > 134 {
		t.Errorf("%v allocations for a pod", got)
	}
}

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
		doc, name := podAndName()
		for i := 0; b.Loop(); i++ {
			number(name, i)
			if findings, err := Unmarshal(doc, &corev1.Pod{}, true); err != nil || len(findings) > 0 {
				b.Fatal(findings, err)
			}
		}
	})
}
