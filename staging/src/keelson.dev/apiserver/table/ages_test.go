// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package table_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/table"
)

// TestAges fills the ages into a row some time after it was made, and compares the result with a
// row that is made at that time.
func TestAges(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	row := resource.Of[corev1.EventList](resource.Kind[*corev1.Event]{
		Version: "v1", Resource: "events", Kind: "Event",
		Cells: func(e *corev1.Event, env resource.CellEnv) []any {
			_ = env.Age(metav1.NewTime(now)) // no cell shows this age
			return []any{e.Name, "3 (" + env.Age(e.FirstTimestamp) + " ago)", env.Age(e.LastTimestamp),
				env.Age(metav1.Time(e.EventTime)), int64(3)}
		},
	})
	moments := map[string]time.Time{
		"none": {}, "now": now, "seconds": now.Add(-90500 * time.Millisecond), "days": now.Add(-400 * 24 * time.Hour),
		"soon": now.Add(time.Second), "future": now.Add(time.Hour), "before Unix": time.Unix(-1e10, 5),
		"long ago": time.Time{}.Add(time.Second),
	}
	ages := table.NewAges("secret")
	for name, moment := range moments {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "a<b>secre"}, FirstTimestamp: metav1.NewTime(moment)}
		event.LastTimestamp, event.EventTime = metav1.NewTime(now.Add(-time.Minute)), metav1.NewMicroTime(moment)
		want, err := table.AppendRow(nil, table.LineOf(row, event, now), []byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		open, err := table.AppendRow(nil, ages.LineOf(row, event), []byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		ages.Fill(open, now, func(part []byte) { got = append(got, part...) })
		if string(got) != string(want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
