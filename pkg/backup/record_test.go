// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"
)

func TestRecord(t *testing.T) {
	client := fake.NewClientset()
	if made, err := Last(t.Context(), client); err != nil || !made.IsZero() {
		t.Errorf("before the first backup: %v, %v", made, err)
	}
	for _, text := range []string{"2026-11-30T20:00:00Z", "2026-11-30T21:00:00Z"} {
		want, err := time.Parse(time.RFC3339, text)
		if err == nil {
			err = Record(t.Context(), client, want)
		}
		if err != nil {
			t.Fatal(err)
		}
		if made, err := Last(t.Context(), client); err != nil || !made.Equal(want) {
			t.Errorf("%v, %v, want %v", made, err, want)
		}
	}
}
