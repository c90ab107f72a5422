// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
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

	utilclock "k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"keelson.dev/api/clock"
)

const stamp = "2026-01-02T03:04:05.000000001Z"

// file is a log. The test writes lines to it in the format of the runtime.
type file struct {
	t    *testing.T
	path string
}

func (f *file) write(text string) {
	f.t.Helper()
	out, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := out.WriteString(text); err != nil {
		f.t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *file) line(text string) { f.write(stamp + " stdout F " + text + "\n") }

func (f *file) rotate(to string) {
	f.t.Helper()
	if err := os.Rename(f.path, f.path+to); err != nil {
		f.t.Fatal(err)
	}
}

// TestFollowOverRotations rotates the log between two reads. It checks that the reader returns each
// line exactly once, and that it returns after the container has ended.
func TestFollowOverRotations(t *testing.T) {
	f := &file{t, filepath.Join(t.TempDir(), "0.log")}
	f.line("one")
	steps := []func(){
		// The file is rotated after the reader has reached its end.
		func() { f.line("two"); f.rotate(".1"); f.line("three") },
		func() { f.rotate(".2") }, // for a while no file has the log's name
		// Only the beginning of a line is written.
		func() { f.line("four"); f.write(stamp + " stdout P fi"); f.write("ve\n") },
		func() { f.write(stamp + " stdout F !\n") }, // the end of that line follows
		// The log is rotated twice between two reads.
		func() { f.rotate(".3"); f.line("six"); f.rotate(".4"); f.line("seven") },
	}
	next := 0
	// The timers of the clock fire at once, so the reader calls running without a delay. running
	// executes the next step. After the last step it returns false.
	running := func(context.Context) (bool, error) {
		if next == len(steps) {
			return false, nil
		}
		steps[next]()
		next++
		return true, nil
	}
	var out strings.Builder
	if err := Read(t.Context(), f.path, Options{Follow: true, Running: running, Stdout: &out, Stderr: &out,
		Clock: hurried{clock.Real()}}); err != nil {
		t.Fatal(err)
	}
	if want := "one\ntwo\nthree\nfour\nfive!\nsix\nseven\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// TestFollowFromBehind writes and rotates the log several times while the reader is blocked, and
// sets the clock back in between. The reader must then read all files that still exist, in the
// order in which they were written.
func TestFollowFromBehind(t *testing.T) {
	for name, c := range map[string]struct {
		files int
		want  string
	}{"KeptAll": {9, "0 1 2 3 4 5 6 "}, "KeptSome": {4, "0 3 4 5 6 "}, "KeptOne": {2, "0 5 6 "}} {
		t.Run(name, func(t *testing.T) {
			f := &file{t, filepath.Join(t.TempDir(), "0.log")}
			now := testclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
			k, err := New(Config{Runtime: reopened{}, Clock: now, Log: slog.New(slog.DiscardHandler),
				MaxSize: 1, MaxFiles: c.files, Period: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			f.line("old")
			if err := k.checkLog(t.Context(), Log{Path: f.path}); err != nil {
				t.Fatal(err)
			}
			f.line("0")
			asked := 0
			running := func(context.Context) (bool, error) {
				if asked++; asked > 1 {
					return false, nil
				}
				for i := 1; i < 7; i++ {
					if i == 3 {
						now.SetTime(now.Now().Add(-48 * time.Hour))
					}
					if err := k.checkLog(t.Context(), Log{Path: f.path}); err != nil {
						t.Fatal(err)
					}
					f.line(fmt.Sprint(i))
				}
				return true, nil
			}
			var out strings.Builder
			if err := Read(t.Context(), f.path, Options{Follow: true, Running: running, Stdout: &out,
				Stderr: &out, Clock: hurried{clock.Real()}}); err != nil {
				t.Fatal(err)
			}
			if got := strings.ReplaceAll(out.String(), "\n", " "); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// reopened is a runtime whose ReopenLog creates no file. The next write of the test creates it.
type reopened struct{ Runtime }

func (reopened) ReopenLog(context.Context, string) error { return nil }

// hurried is a clock whose timers fire at once.
type hurried struct{ clock.Clock }

func (h hurried) NewTimer(time.Duration) utilclock.Timer { return h.Clock.NewTimer(0) }

// TestFollowWithoutTimers checks that a waiting reader sees new lines without a timer.
func TestFollowWithoutTimers(t *testing.T) {
	f := &file{t, filepath.Join(t.TempDir(), "0.log")}
	f.line("one")
	out, in := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Read(ctx, f.path,
			Options{Follow: true, Running: func(context.Context) (bool, error) { return true, nil }, Stdout: in,
				Clock: stopped{clock.Real()}})
	}()
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(out, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v", got, err)
		}
	}
	expect("one\n")
	f.line("two")
	expect("two\n")
	f.rotate(".1")
	f.line("three")
	expect("three\n")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// stopped is a clock whose timers never fire.
type stopped struct{ clock.Clock }

func (s stopped) NewTimer(time.Duration) utilclock.Timer { return s.Clock.NewTimer(24 * time.Hour) }

// TestTail compares the lines that Read returns with lines that the test computes in memory, for
// files of many sizes.
func TestTail(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		lines := rapid.SliceOfN(rapid.StringMatching(`[a-z ]{0,300}`), 0, 60).Draw(rt, "lines")
		n := rapid.Int64Range(0, 70).Draw(rt, "tail")
		whole := rapid.Bool().Draw(rt, "last line ends")
		text := ""
		for i, l := range lines {
			text += fmt.Sprintf("%s stdout F %s\n", stamp, l)
			lines[i] += "\n"
		}
		if !whole && len(lines) > 0 {
			text = strings.TrimSuffix(text, "\n")
			lines[len(lines)-1] = strings.TrimSuffix(lines[len(lines)-1], "\n")
		}
		path := filepath.Join(dir, "log")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			rt.Fatal(err)
		}
		var out strings.Builder
		if err := Read(rt.Context(), path, Options{Tail: &n, Stdout: &out, Clock: clock.Real()}); err != nil {
			rt.Fatal(err)
		}
		// To find the first line, Read does not count an incomplete last line. So it starts one line
		// earlier, but still returns at most n lines.
		from := len(lines) - int(n)
		if !whole && len(lines) > 0 {
			from--
		}
		want := lines[max(from, 0):]
		want = want[:min(len(want), int(n))]
		if got := out.String(); got != strings.Join(slices.Clone(want), "") {
			rt.Fatalf("%d of %d: %q", n, len(lines), got)
		}
	})
}

func TestParse(t *testing.T) {
	for line, want := range map[string]string{
		stamp + " stdout F text\n":      "text\n",
		stamp + " stderr P text\n":      "text",
		stamp + " stderr P:more text\n": "text",
		stamp + " stdout F \n":          "\n",
		stamp + " stdin F text\n":       "none",
		"x stdout F text\n":             "none",
		stamp + " stdout\n":             "none",
		"\n":                            "none",
	} {
		m, ok := parse([]byte(line))
		if got := string(m.text); ok != (want != "none") || ok &&
			(got != want || m.stderr != strings.Contains(line, "stderr")) {
			t.Errorf("%q: %q %v", line, got, ok)
		}
	}
}
