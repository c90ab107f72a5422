// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

// The bounds that docs/howto/upgrade.md promises.
const (
	longestRequest = 30 * time.Second
	longestPause   = 3 * time.Second
)

func TestUpgrade(t *testing.T) {
	if os.Getenv("KEELSON_UPGRADE") == "" {
		t.Skip("KEELSON_UPGRADE is not set")
	}
	// Discard the log messages of clients, because lost connections are expected in this test.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	u := newUpgrade(t)
	u.up()
	u.run(workload, "apply", "-f", "-")
	u.podsReady()
	l := u.startLedger()
	containers := u.containers()
	check := func(v version) {
		t.Helper()
		u.serves(v)
		u.podsReady()
		u.bothClients()
		u.sameContainers(containers)
		l.look(v.String())
	}
	check(previous)
	before := u.everything(0)

	u.roll(emulating)
	check(emulating)
	u.same("1.36 and 1.37 that emulates it", before, u.everything(0))
	u.same("1.36 and the other server of 1.37", before, u.everything(1))
	u.run(written, "apply", "-f", "-")
	u.podsReady()
	before = u.everything(0)

	u.roll(previous)
	check(previous)
	u.same("1.37 that emulates 1.36 and 1.36", before, u.everything(0))
	u.same("1.37 that emulates 1.36 and the other server of 1.36", before, u.everything(1))
	u.droppedFields()

	u.roll(emulating)
	check(emulating)
	u.roll(present)
	check(present)
	if out := u.run("", "check-downgrade"); !strings.Contains(out, "supports all objects") {
		t.Errorf("check-downgrade when the emulation has ended: %s", out)
	}

	m := u.newMixture()
	m.listed()
	u.olderClients()
	stored := m.stored() // now that no controller writes the status of DeviceTaintRules
	u.podsReady()
	u.bothClients()
	u.sameContainers(containers)
	l.look("API servers of 1.37, everything else of 1.36")
	u.restartWith("apiserver-2", u.previousPrograms)
	m.rounds()
	m.unchanged("both versions served", stored)
	stored = m.stored()
	l.look("both versions")

	u.roll(previous)
	check(previous)
	m.unchanged("1.36 served alone", stored)
	u.roll(emulating)
	check(emulating)
	m.unchanged("1.37 emulated 1.36", stored)
	u.roll(present)
	check(present)
	m.readable()
	m.listed()

	l.finish()
	u.sameContainers(containers)
}

// version is a state of the cluster: the programs that it runs, and how.
type version int

const (
	previous  version = iota // the programs of 1.36
	emulating                // the programs of 1.37, which emulate 1.36
	present                  // the programs of 1.37
)

func (v version) String() string {
	return [...]string{"1.36", "1.37 that emulates 1.36", "1.37"}[v]
}

// roll brings the whole cluster to a version, with the command for operators.
func (u *upgrade) roll(v version) {
	u.t.Helper()
	args := []string{"cluster", "upgrade", "--name", clusterName, "--from", u.presentPrograms}
	switch v {
	case previous:
		args[len(args)-1] = u.previousPrograms
	case emulating:
		args = append(args, "--emulated-version", "1.36")
	case present:
	}
	u.t.Logf("%v: change the cluster to %v", u.at(), v)
	u.t.Logf("%s", u.run("", args...))
}

// upgrade is one run of the test.
type upgrade struct {
	t     *testing.T
	began time.Time
	dir   string // has the cluster's data, the programs that it runs, and the kubeconfig
	// previousPrograms and presentPrograms are the directories of the programs of 1.36 and 1.37.
	previousPrograms, presentPrograms string
	*access
}

func newUpgrade(t *testing.T) *upgrade {
	t.Helper()
	from := os.Getenv("KEELSON_UPGRADE_FROM")
	if from == "" {
		from = "../../.build/previous/bin"
	}
	u := &upgrade{t: t, began: time.Now()}
	for _, dir := range []struct {
		path  string
		place *string
	}{{from, &u.previousPrograms}, {"../../bin", &u.presentPrograms}} {
		path, err := filepath.Abs(dir.path)
		if err != nil {
			t.Fatal(err)
		}
		*dir.place = path
	}
	var err error
	if u.dir, err = os.MkdirTemp("", "keelson-upgrade-"); err != nil {
		t.Fatal(err)
	}
	return u
}

// at returns the time since the beginning of the test.
func (u *upgrade) at() time.Duration { return time.Since(u.began).Round(time.Millisecond) }

// patience is how long the test waits for a condition.
const patience = 3 * time.Minute

// eventually calls missing repeatedly until it returns nil, which means that nothing is missing. If
// that takes longer than patience, the test fails.
func (u *upgrade) eventually(what string, missing func(ctx context.Context) error) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), patience)
	defer cancel()
	for {
		err := missing(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			u.t.Fatalf("%v: still waiting after %v: %s: %v", u.at(), patience, what, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
