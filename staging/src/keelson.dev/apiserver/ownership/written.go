// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"bytes"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// written remembers the FieldsV1 written last: objects that are made alike, by the same
// manager, share the text, which nobody modifies.
type written struct {
	mu   sync.Mutex
	last []metav1.FieldsV1 // the latest first
}

// fields returns FieldsV1 of text, of which it keeps nothing.
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
	made.SetRawBytes(text) // a copy
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
