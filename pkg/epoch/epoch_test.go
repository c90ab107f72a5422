// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package epoch_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"keelson.dev/keelson/pkg/epoch"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "0": 0, "7": 7, "9223372036854775807": 1<<63 - 1,
		"-1": -1, "x": -1, "1.5": -1, "9223372036854775808": -1} {
		got, err := epoch.Of(http.Header{epoch.Header: {text}})
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	if got, err := epoch.Parse(epoch.Format(42)); err != nil || got != 42 {
		t.Error(got, err)
	}
}

// TestNext checks that an epoch is higher than all known ones, and that it grows with the time.
func TestNext(t *testing.T) {
	for _, tc := range []struct {
		now   int64
		known []int64
		want  int64
	}{
		{now: 1000, want: 1000},
		{now: 1000, known: []int64{0, 999}, want: 1000},
		{now: 1000, known: []int64{1000, 5}, want: 1001},
		{now: -5, want: 1}, // a machine without a clock
		{now: -5, known: []int64{2000}, want: 2001},
	} {
		if got := epoch.Next(time.Unix(tc.now, 0), tc.known...); got != tc.want {
			t.Errorf("at %d with %v: %d, want %d", tc.now, tc.known, got, tc.want)
		}
	}
}

func TestKey(t *testing.T) {
	for _, prefix := range []string{"registry", "/registry", "/registry/"} {
		if got := epoch.Key(prefix); got != "/registry/machines.keelson.dev/epoch" {
			t.Errorf("%q: %s", prefix, got)
		}
	}
}

func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "epoch")
	f := epoch.File(file)
	for _, content := range []string{"", "x", "-1", "1e3"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, known := f.Read(); got != 0 || known {
			t.Errorf("%q: %d, %t", content, got, known)
		}
	}
	for _, want := range []int64{42, 0} {
		if err := f.Write(want); err != nil {
			t.Fatal(err)
		}
		if got, known := f.Read(); got != want || !known {
			t.Errorf("%d: %d, %t", want, got, known)
		}
	}
	for range 2 {
		if err := f.Remove(); err != nil {
			t.Fatal(err)
		}
		if got, known := f.Read(); got != 0 || known {
			t.Errorf("without a file: %d, %t", got, known)
		}
	}
}
