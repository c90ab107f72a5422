// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"bytes"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// written caches recently encoded FieldsV1, so that similar objects written by one manager share
// the text, which is never modified.
type written struct {
	mu   sync.Mutex
	last []metav1.FieldsV1 // at most parsedKept, the most recently used first
}

// fields returns a cached FieldsV1 with the given text, or one with a copy of text.
func (w *written) fields(text []byte) *metav1.FieldsV1 {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, known := range w.last {
		if bytes.Equal(known.GetRawBytes(), text) {
			copy(w.last[1:i+1], w.last[:i])
			w.last[0] = known
			return &known
		}
	}
	var made metav1.FieldsV1
	made.SetRawBytes(text) // makes a copy of text
	if len(text) > parsedMost {
		return &made
	}
	if len(w.last) < parsedKept {
		w.last = append(w.last, metav1.FieldsV1{})
	}
	copy(w.last[1:], w.last)
	w.last[0] = made
	return &made
}
