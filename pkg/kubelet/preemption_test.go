// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestPreemptions checks that a critical pod waits until all its victims have ended or a time limit
// has passed, and that each victim is ended only once.
func TestPreemptions(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	c := clocktesting.NewFakeClock(start)
	p := newPreemptions(c, slog.New(slog.DiscardHandler), t.TempDir())
	if !p.begin("critical", "a", 1) || !p.begin("critical", "b", 60) || !p.begin("critical", "c", 2) {
		t.Error("a pod that ends for the first time ended before")
	}
	if p.begin("other", "a", 1) {
		t.Error("a pod ends twice")
	}
	if got := p.until("critical"); !got.Equal(start.Add(90 * time.Second)) {
		t.Errorf("waits until %v", got)
	}
	if got := p.until("other"); !got.Equal(start.Add(minPatience)) {
		t.Errorf("the other waits until %v", got)
	}
	if got := p.until("a"); !got.IsZero() {
		t.Errorf("one that makes room waits until %v", got)
	}
	for pod, want := range map[types.UID][]types.UID{"b": nil, "nobody": nil} {
		if got := p.podEnded(pod); !slices.Equal(got, want) {
			t.Errorf("%s has ended: %v go on", pod, got)
		}
	}
	if got := p.podEnded("a"); !slices.Equal(got, []types.UID{"other"}) || !p.until("other").IsZero() {
		t.Errorf("a has ended: %v go on", got)
	}
	if got := p.podEnded("c"); !slices.Equal(got, []types.UID{"critical"}) || !p.until("critical").IsZero() {
		t.Errorf("all have ended: %v go on", got)
	}
	p.begin("critical", "d", 1)
	c.Step(minPatience)
	if got := p.until("critical"); !got.IsZero() || len(p.rooms) > 0 {
		t.Errorf("waits until %v for a pod that does not end", got)
	}
	p.begin("critical", "d", 1)
	if p.podEnded("critical"); len(p.rooms) > 0 {
		t.Error("what has ended waits")
	}
}

// TestPreemptionsSurviveRestart checks that a restarted kubelet continues to end victims and makes
// critical pods wait for them. Victims are forgotten once they have left the node.
func TestPreemptionsSurviveRestart(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	c, dir := clocktesting.NewFakeClock(start), t.TempDir()
	fresh := func() *preemptions { return newPreemptions(c, slog.New(slog.DiscardHandler), dir) }
	p := fresh()
	p.begin("critical", "a", 60)
	p.begin("critical", "b", 1)
	p.begin("other", "a", 60)
	if p.resumed("a") || p.resumed("b") {
		t.Error("what this process ends was begun by an earlier one")
	}
	c.Step(time.Minute)
	p = fresh()
	if !p.resumed("a") || !p.resumed("b") || p.resumed("critical") {
		t.Fatalf("an earlier process ends %v", p.all())
	}
	if got := p.until("critical"); !got.Equal(c.Now().Add(90 * time.Second)) {
		t.Errorf("waits until %v", got)
	}
	if p.begin("critical", "a", 60) {
		t.Error("a pod ends twice")
	}
	if got := p.podEnded("a"); !slices.Equal(got, []types.UID{"other"}) {
		t.Errorf("a has ended: %v go on", got)
	}
	if p = fresh(); !p.resumed("a") {
		t.Error("a victim that the API may not know about is forgotten")
	}
	p.forget("a")
	if got := p.podEnded("b"); p.resumed("a") || len(got) != 0 {
		t.Errorf("a, which has left the node, is resumed: %t; after the end of b: %v", p.resumed("a"), got)
	}
	p.podEnded("a")
	p.forget("b")
	if p = fresh(); len(p.all()) > 0 || !p.until("critical").IsZero() {
		t.Errorf("%v end, the critical one waits until %v", p.all(), p.until("critical"))
	}
	if err := os.WriteFile(filepath.Join(dir, preemptionsFile), []byte(`{"a":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if p = fresh(); len(p.all()) > 0 || !p.begin("critical", "a", 1) {
		t.Error("a broken file was believed")
	}
}
