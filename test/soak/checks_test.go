// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"keelson.dev/keelson/test/soak/history"
	"keelson.dev/keelson/test/unshare"
)

// TestIdentitiesSeeTwo checks that two simultaneous processes of one pod identity (the name of a
// pod of a StatefulSet) are reported, and that a single process is not.
func TestIdentitiesSeeTwo(t *testing.T) {
	unshare.NeedRoot(t) // root is needed to create PID namespaces
	seed := uint64(time.Now().UnixNano())
	i := newIdentities(seed)
	start := func(identity string) {
		c := exec.Command("sleep", "1000")
		c.Env = []string{string(i.mark) + identity}
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	}
	start("a-0")
	start("a-1")
	if found := i.look(); len(found) > 0 || len(i.runs) != 2 {
		t.Errorf("different identities: %v, %v", found, i.runs)
	}
	start("a-0")
	if found := i.look(); len(found) != 1 {
		t.Errorf("an identity that runs twice: %v", found)
	}
	if found := i.look(); len(found) != 0 {
		t.Errorf("reported again: %v", found)
	}
}

func TestMemoryThatGrowsIsSeen(t *testing.T) {
	for name, c := range map[string]struct {
		late  int
		grown int
	}{"flat": {late: 50 << 10}, "a little": {late: 90 << 10}, "grown": {late: 100 << 10, grown: 1}} {
		t.Run(name, func(t *testing.T) {
			m := &memory{duration: time.Hour}
			for at := time.Duration(0); at < time.Hour; at += time.Minute {
				kib := 50 << 10
				if at > 40*time.Minute {
					kib = c.late
				}
				// Samples of old processes must not be compared with samples of young processes.
				m.samples = append(
					m.samples,
					sample{"apiserver", at, 90 * time.Second, resident{anonymous: kib}},
					sample{"apiserver", at, time.Second, resident{anonymous: 1}},
					sample{"etcd", at, at, resident{anonymous: 1 << 10, files: int(at / time.Second)}},
				)
			}
			if grown := m.growth(); len(grown) != c.grown {
				t.Error(grown)
			}
		})
	}
}

// TestMemoryTable checks that a row of the table has the anonymous memory at several times of the
// run, and the file pages at its end.
func TestMemoryTable(t *testing.T) {
	m := &memory{duration: 100 * time.Minute}
	for at := range 100 {
		m.samples = append(m.samples, sample{"etcd", time.Duration(at) * time.Minute, time.Hour,
			resident{anonymous: (at/20 + 1) << 10, files: 7 << 10}})
	}
	const want = "| etcd | 1.0 | 3.0 | 5.0 | 5.0 | 7.0 |\n"
	if table := m.table(); !strings.HasSuffix(table, want) {
		t.Errorf("got\n%s want the row\n%s", table, want)
	}
}

func TestRefusal(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		body string
		want history.Outcome
	}{
		"conflict": {http.StatusConflict, "", history.Refused},
		"webhook": {http.StatusInternalServerError,
			`{"message":"Internal error occurred: failed calling webhook \"x\": refused"}`, history.Refused},
		"error":        {http.StatusInternalServerError, "etcdserver: request timed out", history.Unknown},
		"out of order": {http.StatusServiceUnavailable, "", history.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refusal(c.code, []byte(c.body)); got != c.want {
				t.Errorf("want %s, have %s", c.want, got)
			}
		})
	}
}

func TestStreamed(t *testing.T) {
	for text, want := range map[string]history.Outcome{
		`unable to upgrade streaming request: pods "db-1" not found`:                                  history.Refused,
		`Internal error occurred: unable to upgrade connection: container not found ("main")`:         history.Refused,
		`Internal error occurred: error sending request: Post "https://10.50.0.11:10250/exec/x": EOF`: history.Unknown,
		"error reading from error stream: next reader: websocket: close 1006 (abnormal closure): EOF": history.Unknown,
		"the command printed nothing": history.Unknown,
	} {
		if got := streamed(errors.New(text)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestRole(t *testing.T) {
	for name, want := range map[string]string{
		"apiserver": "apiserver", "apiserver-2": "apiserver", "controller-manager-1": "controller-manager",
		"kubelet-n1":    "kubelet",
		"containerd-n2": "containerd", "etcd-3": "etcd", "balancer": "balancer",
	} {
		if got := role(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
