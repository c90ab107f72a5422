// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/kubelet/logs"
)

// writer is a runtime with one container, whose log the test writes.
type writer struct {
	path   string
	refuse error
	opened int
}

func (w *writer) Logs(context.Context) ([]logs.Log, error) {
	return []logs.Log{{ContainerID: "c", Path: w.path}}, nil
}

func (w *writer) ReopenLog(context.Context, string) error {
	if w.refuse != nil {
		return w.refuse
	}
	w.opened++
	return os.WriteFile(w.path, nil, 0o600)
}

func (w *writer) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(w.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func keeper(t *testing.T, w *writer, c *testclock.FakeClock, files int) *logs.Keeper {
	t.Helper()
	k, err := logs.New(logs.Config{
		Runtime: w, Clock: c, Log: slog.New(slog.DiscardHandler), Root: filepath.Dir(w.path), MaxSize: 10,
		MaxFiles: files, Period: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func listed(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestRotate(t *testing.T) {
	dir := t.TempDir()
	w := &writer{path: filepath.Join(dir, "0.log")}
	c := testclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	k := keeper(t, w, c, 4)
	step := func(text string, want ...string) {
		t.Helper()
		w.write(t, text)
		if err := k.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := listed(t, dir); !slices.Equal(got, want) {
			t.Fatalf("files %v, want %v", got, want)
		}
		c.Step(time.Second)
	}
	step("short", "0.log")
	step("one long line\n", "0.log", "0.log.20260102-030406")
	step("two long lines\n", "0.log", "0.log.20260102-030406.gz", "0.log.20260102-030407")
	step("three long lines\n", "0.log", "0.log.20260102-030406.gz", "0.log.20260102-030407.gz", "0.log.20260102-030408")
	step("four long lines\n", "0.log", "0.log.20260102-030407.gz", "0.log.20260102-030408.gz", "0.log.20260102-030409")

	f, err := os.Open(filepath.Join(dir, "0.log.20260102-030407.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(z); err != nil || string(b) != "two long lines\n" {
		t.Errorf("compressed log holds %q, %v", b, err)
	}
}

// TestRotateByABadClock checks that files are kept and removed in the order in which they were
// written, even if the clock is set back between rotations.
func TestRotateByABadClock(t *testing.T) {
	dir := t.TempDir()
	w := &writer{path: filepath.Join(dir, "0.log")}
	c := testclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 58, 0, time.UTC))
	k := keeper(t, w, c, 5)
	for i, by := range []time.Duration{0, -time.Hour, 0, time.Minute, -24 * time.Hour, 48 * time.Hour, -time.Second} {
		c.SetTime(c.Now().Add(by))
		w.write(t, fmt.Sprintf("%d is long enough", i))
		if err := k.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, name := range listed(t, dir)[1:] {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		in := io.Reader(f)
		if strings.HasSuffix(name, ".gz") {
			if in, err = gzip.NewReader(f); err != nil {
				t.Fatal(err)
			}
		}
		b, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(b[:1]))
	}
	if want := []string{"3", "4", "5", "6"}; !slices.Equal(got, want) {
		t.Errorf("kept %v of %v, want %v", got, listed(t, dir), want)
	}
}

func TestRotateCompletesWhatWasInterrupted(t *testing.T) {
	dir := t.TempDir()
	w := &writer{path: filepath.Join(dir, "0.log")}
	for _, name := range []string{"0.log.20260101-000000", "0.log.20260101-000000.gz",
		"0.log.20260101-000001.tmp", "other.log.1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := keeper(t, w, testclock.NewFakeClock(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)), 5)
	if err := k.Rotate(t.Context()); err != nil || w.opened != 1 {
		t.Fatalf("a missing log was reopened %d times: %v", w.opened, err)
	}
	w.write(t, strings.Repeat("y", 10))
	if err := k.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"0.log", "0.log.20260101-000000.gz", "0.log.20260102-000000", "other.log.1"}
	if got := listed(t, dir); !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
}

func TestFailedRotationIsUndone(t *testing.T) {
	dir := t.TempDir()
	refused := errors.New("no")
	w := &writer{path: filepath.Join(dir, "0.log"), refuse: refused}
	w.write(t, "a long line of text")
	k := keeper(t, w, testclock.NewFakeClock(time.Unix(0, 0)), 2)
	if err := k.Rotate(t.Context()); !errors.Is(err, refused) {
		t.Errorf("error %v, want %v", err, refused)
	}
	if got := listed(t, dir); !slices.Equal(got, []string{"0.log"}) {
		t.Errorf("files %v", got)
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"ns_gone_1", "ns_there_2", "somebody-elses"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "c"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	k := keeper(t, &writer{path: filepath.Join(dir, "0.log")}, testclock.NewFakeClock(time.Unix(0, 0)), 2)
	if err := k.Sweep(func(uid types.UID) bool { return uid == "2" }); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, dir); !slices.Equal(got, []string{"ns_there_2", "somebody-elses"}) {
		t.Errorf("directories %v", got)
	}
}

func TestNewErrors(t *testing.T) {
	if _, err := logs.New(logs.Config{MaxFiles: 1}); err == nil {
		t.Error("one file cannot be rotated")
	}
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"1.log", "1.log.20260101-000000.gz", "11.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second call finds nothing to remove
		if err := logs.Remove(filepath.Join(dir, "1.log")); err != nil {
			t.Fatal(err)
		}
	}
	if got := listed(t, dir); !slices.Equal(got, []string{"11.log"}) {
		t.Errorf("files %v", got)
	}
}
