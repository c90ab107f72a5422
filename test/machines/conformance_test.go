// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson.dev/keelson/test/machines/lab"
)

// desk is the address at which the machines reach the desk.
const desk = "10.60.0.1"

// balance makes the desk a load balancer: each new connection from the desk to its port 6443 goes to the
// next of the machines' API servers.
func (c *cell) balance(machines []*lab.Machine) {
	c.Helper()
	var servers []string
	for i, m := range machines {
		servers = append(servers, fmt.Sprintf("%d: %s", i, m.Address()))
	}
	rules := fmt.Sprintf(`table ip balancer {
		chain output {
			type nat hook output priority -100;
			ip daddr %s tcp dport 6443 dnat to numgen inc mod %d map { %s };
		}
	}`, desk, len(servers), strings.Join(servers, ", "))
	if _, err := c.lab.Run(c.within(), "nft", rules); err != nil {
		c.Fatal(err)
	}
}

// mirrors makes containerd pull all images from hack/registry at the desk, except those of the registries
// that some specs run on the node.
const mirrors = `
	mkdir -p /etc/containerd/certs.d/_default /etc/containerd/certs.d/localhost:5000
	echo 'server = "http://` + desk + `:5000"' >/etc/containerd/certs.d/_default/hosts.toml
	echo 'server = "http://localhost:5000"' >/etc/containerd/certs.d/localhost:5000/hosts.toml`

// TestConformance runs Kubernetes' Conformance suite on three control planes and two workers. It belongs to
// test/conformance/run.sh, which makes the directory in the environment variable KEELSON_CONFORMANCE. The
// directory has two programs that run at the desk: the registry of the suite's images, and the suite. The
// test writes the suite's kubeconfig, and the machines' journals, to the same directory.
func TestConformance(t *testing.T) {
	dir := os.Getenv("KEELSON_CONFORMANCE")
	if dir == "" {
		t.Skip("KEELSON_CONFORMANCE is not set")
	}
	release := releaseDir(t)
	c := newCell(t, "conformance")
	c.noStrays()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() {
		_, err := c.lab.Run(ctx, filepath.Join(dir, "registry"))
		served <- err
	}()
	defer func() {
		stop()
		t.Logf("registry: %v", <-served)
	}()

	machines := c.controlPlanes(release, 2, "--register-with-taints=node-role.kubernetes.io/control-plane:NoSchedule",
		"--apiserver-cert-extra-sans="+desk)
	defer c.saveJournals(machines, filepath.Join(dir, "logs"))
	for _, m := range machines {
		c.run(m, mirrors)
	}
	conf := strings.Replace(c.run(machines[0], "cat $KUBECONFIG"), "127.0.0.1:7443", desk+":6443", 1)
	if err := os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	c.whole(machines[0], 3)
	c.balance(machines[:3])
	// The registry's last image is that of the pause program.
	if _, err := c.lab.Run(c.within(), "sh", "-c",
		`until curl -s http://`+desk+`:5000/v2/_catalog | grep -q '"pause"'; do sleep 0.2; done`); err != nil {
		t.Fatal(err)
	}
	if _, err := c.lab.Run(ctx, filepath.Join(dir, "suite")); err != nil {
		t.Error(err)
	}
}

// saveJournals writes the journals of machines to files.
func (c *cell) saveJournals(machines []*lab.Machine, dir string) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		c.Error(err)
	}
	for _, m := range machines {
		out, err := m.Run(c.within(), "journalctl", "--no-pager", "--output=short-precise")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, m.Name()+".log"), []byte(strings.TrimSpace(string(out))+"\n"), 0o644)
		}
		if err != nil {
			c.Error(err)
		}
	}
}
