// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"keelson.dev/keelson/pkg/machine/upgrade"
)

// TestEnded checks when a machine switches to another release: from the first write of the journal, before the link
// exists, until the link is removed.
func TestEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		entry *upgrade.Entry
		link  bool
		free  bool
	}{
		"never switched": {free: true},
		"begun":          {entry: &upgrade.Entry{To: "2"}},
		"switching":      {entry: &upgrade.Entry{To: "2"}, link: true},
		"almost done":    {entry: &upgrade.Entry{To: "2", Done: true}, link: true},
		"done":           {entry: &upgrade.Entry{To: "2", Done: true}, free: true},
	} {
		t.Run(name, func(t *testing.T) {
			j, link := upgrade.Journal(filepath.Join(t.TempDir(), "journal")), filepath.Join(t.TempDir(), "link")
			if tc.entry != nil {
				if err := j.Save(tc.entry); err != nil {
					t.Fatal(err)
				}
			}
			if tc.link {
				if err := os.Symlink("target", link); err != nil {
					t.Fatal(err)
				}
			}
			if err := ended(j, link); (err == nil) != tc.free || err != nil && !errors.Is(err, errSwitching) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// fakeSystemctl puts a program systemctl into PATH that ends with the given status, and for which all units are
// active. It returns a function that returns the arguments of all calls, one call on each line.
func fakeSystemctl(t *testing.T, status string) (calls func() string) {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\necho $* >>" + dir + "/calls\necho ActiveState=active\nexit " + status + "\n"
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	return func() string {
		out, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
}

// TestStopQueued checks that systemd is asked to stop units whether they run or not, because their start may be in
// its queue, and that units that it does not know are no fault.
func TestStopQueued(t *testing.T) {
	for status, fine := range map[string]bool{"0": true, "5": true, "1": false} {
		calls := fakeSystemctl(t, status)
		if err := stopAgent(t.Context()); (err == nil) != fine {
			t.Errorf("status %s: %v", status, err)
		}
		const want = "stop keelson-agent.service\nstop keelson-switch.service keelson-rejoin.service\n"
		if got := calls(); got != want {
			t.Errorf("status %s: systemctl was called with %q", status, got)
		}
	}
}

// TestResume checks that a restore that fails, or that its user interrupts, starts what it has stopped, and does not
// wait for that: etcd without a quorum never becomes ready.
func TestResume(t *testing.T) {
	calls := fakeSystemctl(t, "0")
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if err := resume(ctx, func(p string) bool { return p == etcd || p == agentName }); err != nil {
		t.Error(err)
	}
	if got := calls(); got != "start --no-block keelson-etcd.service keelson-agent.service\n" {
		t.Errorf("systemctl was called with %q", got)
	}
}
