// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		if err := Record(t.Context(), client, want.Add(-time.Hour)); err != nil {
			t.Error(err)
		}
		if made, err := Last(t.Context(), client); err != nil || !made.Equal(want) {
			t.Errorf("an older backup was recorded: %v, %v", made, err)
		}
	}
	damaged := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: recordName}}
	maps := v1.SchemeGroupVersion.WithResource("configmaps")
	if err := client.Tracker().Update(maps, damaged, "kube-system"); err != nil {
		t.Fatal(err)
	}
	want := time.Unix(1_796_072_400, 5)
	if err := Record(t.Context(), client, want); err != nil {
		t.Error("a damaged record:", err)
	}
	if made, err := Last(t.Context(), client); err != nil || !made.Equal(want.Truncate(time.Second)) {
		t.Errorf("after a damaged record: %v, %v", made, err)
	}
}
