// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"strings"
	"testing"

	"keelson.dev/keelson/test/machines/lab"
)

// copyRelease makes a copy of the release on a machine, and changes it by a shell script.
func (c *cell) copyRelease(m *lab.Machine, name, change string) {
	c.Helper()
	c.run(m, "cd /usr/lib/keelson && cp -al "+version+" "+name+" && cd "+name+"\n"+change)
}

// TestUpgrade upgrades a cluster.
func TestUpgrade(t *testing.T) {
	release := releaseDir(t)
	c := newCell(t, "upgrade")
	c.noStrays()
	m := c.machine("m1", release)
	c.initialize(m, "")
	c.copyRelease(m, "test2", "")
	stop := c.startWriter(m, "/etc/kubernetes/admin.conf")
	c.run(m, `ctl wait --for=create machine/m1 --timeout=30s
		ctl patch machine m1 --type=merge --patch '{"spec": {"release": "test2"}}'
		ctl wait machine/m1 --for=jsonpath='{.status.release}'=test2 --timeout=60s
		ctl wait machine/m1 --for=condition=Upgraded --timeout=60s || true
		ctl get machines -o yaml; journalctl -u keelson-switch --no-pager`)
	t.Log(c.run(m, `ctl get machines -o yaml; journalctl -u keelson-switch -o short-precise --no-pager`))
	stop()
	if strings.Contains(c.run(m, "systemctl --failed --quiet --plain"), "keelson") {
		t.Error("failed units")
	}
}
