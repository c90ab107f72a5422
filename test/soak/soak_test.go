// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"keelson.dev/keelson/pkg/cluster"
)

const (
	clusterName = "soak"
	nodes       = 2
	// patience is how long the test waits for a condition after the killing has ended.
	patience = 10 * time.Minute
)

// settings has the values of the environment variables.
type settings struct {
	duration, every time.Duration
	seed            uint64
	planes          int
	upgrade, report string
	keep            bool
}

func readSettings(t *testing.T) settings {
	t.Helper()
	text := os.Getenv("KEELSON_SOAK")
	if text == "" {
		t.Skip("KEELSON_SOAK is not set")
	}
	s := settings{
		seed: uint64(time.Now().UnixNano()), planes: 2,
		upgrade: os.Getenv("KEELSON_SOAK_UPGRADE"), report: os.Getenv("KEELSON_SOAK_REPORT"),
		keep: os.Getenv("KEELSON_SOAK_KEEP") != "",
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	s.duration, err = time.ParseDuration(text)
	must(err)
	s.every = 20 * time.Second
	if s.duration < 10*time.Minute {
		s.every = 8 * time.Second
	}
	if text := os.Getenv("KEELSON_SOAK_EVERY"); text != "" {
		s.every, err = time.ParseDuration(text)
		must(err)
	}
	if text := os.Getenv("KEELSON_SOAK_SEED"); text != "" {
		s.seed, err = strconv.ParseUint(text, 10, 64)
		must(err)
	}
	if text := os.Getenv("KEELSON_SOAK_CONTROL_PLANES"); text != "" {
		s.planes, err = strconv.Atoi(text)
		must(err)
	}
	return s
}

// soak is one run of the test.
type soak struct {
	t *testing.T
	settings
	dir, ctl string
	cfg      *cluster.Config
	rest     *rest.Config
	client   kubernetes.Interface
	began    time.Time

	mu sync.Mutex
	// +guarded by mu
	violations []string
	// counts has the numbers that workloads add to the report, in the order of their first use.
	counts []count
}

type count struct {
	what string
	n    int
}

// at returns the time since the beginning of the run.
func (s *soak) at() time.Duration { return time.Since(s.began) }

// random returns a random source for one part of the run. Each part has its own source, so that the
// numbers which one part draws do not depend on other parts.
func (s *soak) random(part uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, part)) }

// violatef records a violation, which makes the test fail, with a formatted message.
func (s *soak) violatef(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	s.violations = append(s.violations, text)
	s.mu.Unlock()
	s.t.Errorf("at %v: %s", s.at().Round(time.Millisecond), text)
}

// count adds n to the number with the given name in the report.
func (s *soak) count(what string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.counts {
		if s.counts[i].what == what {
			s.counts[i].n += n
			return
		}
	}
	s.counts = append(s.counts, count{what, n})
}

// eventually calls missing repeatedly until it returns nil, which means that nothing is missing. If
// that takes longer than patience, it records a violation with the last error.
func (s *soak) eventually(what string, missing func(ctx context.Context) error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	told := time.Now()
	var err error
	for {
		now := missing(ctx)
		if now == nil {
			return true
		}
		if err == nil || ctx.Err() == nil { // ignores an error that only the deadline has caused
			err = now
		}
		if time.Since(told) > time.Minute {
			told = time.Now()
			s.t.Logf("%v: waiting: %s: %v", s.at().Round(time.Millisecond), what, err)
		}
		select {
		case <-ctx.Done():
			s.violatef("still waiting after %v: %s: %v", patience, what, err)
			return false
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// pause waits for d. It returns false if ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func TestSoak(t *testing.T) {
	s := &soak{t: t, settings: readSettings(t)}
	// Discard the log messages of clients, because lost connections are expected in this test.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	t.Logf("seed %d: %v, a kill every %v", s.seed, s.duration, s.every)
	s.up()
	s.began = time.Now()
	baseline := s.settled(nil)

	w := s.newWorkloads()
	load, endLoad := context.WithCancel(t.Context())
	defer endLoad()
	w.start(load)
	trouble, endTrouble := context.WithTimeout(t.Context(), s.duration)
	defer endTrouble()
	k := s.newKiller()
	m := s.sampleMemory(trouble)
	identities := s.watchIdentities(load)
	k.run(trouble)
	k.heal()
	m.wait()

	endLoad()
	w.finish()
	identities.wait()
	if len(identities.runs) != identityCount {
		s.violatef("%d of %d identities were seen", len(identities.runs), identityCount)
	}
	w.remove()
	s.settled(baseline)
	s.report(k, w, identities, m)
}
