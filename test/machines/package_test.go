// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"os"
	"strings"
	"testing"
)

// TestPackage installs the Debian package in the environment variable KEELSON_PACKAGE on a machine, creates
// a cluster, and removes both again. hack/package-test.sh runs it.
func TestPackage(t *testing.T) {
	file := os.Getenv("KEELSON_PACKAGE")
	if file == "" {
		t.Skip("KEELSON_PACKAGE is not set")
	}
	c := newCell(t, "package")
	c.noStrays()
	m, err := c.lab.Boot(c.within(), "m1")
	if err == nil {
		err = m.CopyIn(file, "/root/keelson.deb")
	}
	if err != nil {
		t.Fatal(err)
	}
	release := c.run(m, `dpkg -i /root/keelson.deb >&2; ls -d /usr/lib/keelson/*/bin`)
	path := "PATH=" + release + ":$PATH\n"
	t.Log(c.run(m, path+initCommand))
	c.run(m, path+`ctl rollout status deployment/coredns --namespace=kube-system --timeout=60s
		ctl wait --for=condition=Ready nodes --all --timeout=10s`)
	name := c.run(m, "dpkg-query --show --showformat='${Package}\n' 'keelson-*'")
	if out := c.run(m, "dpkg -r "+name+" 2>&1 || true"); !strings.Contains(out, "error") {
		t.Errorf("the package of the release that runs was removed:\n%s", out)
	}
	c.run(m, path+"ctl get nodes && ctl reset --force")
	if out := c.run(m, "dpkg --purge "+name+" >&2; ls -d /usr/lib/keelson* /etc/keelson* 2>/dev/null || true"); out != "" {
		t.Errorf("left behind:\n%s", out)
	}
}
