// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/provision"
)

// makeNode writes the files that a node needs before its host starts. It does not replace
// certificates, or files that an operator may have changed.
func makeNode(c *Config, n Node, clk clock.Clock) error {
	nd, p := c.dirs().node(n.Name), c.node(n)
	for _, dir := range []string{"etc.work", "tmp"} {
		if err := os.MkdirAll(nd.path(dir), 0o755); err != nil {
			return fmt.Errorf("node directory: %w", err)
		}
	}
	if err := os.Chmod(nd.path("tmp"), 0o777|os.ModeSticky); err != nil {
		return fmt.Errorf("node directory: %w", err)
	}
	ca, err := os.ReadFile(c.dirs().control().PKI("ca.crt"))
	if err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	for _, write := range []func() error{
		p.WriteFiles,
		func() error { return p.IssueCertificates(c.dirs().control(), false, clk) },
		func() error { return p.WriteKubeconfigs(ca) },
		func() error { return provision.WriteFiles(nd.root, hostFiles(c.Name, n)) },
	} {
		if err := write(); err != nil {
			return err
		}
	}
	return writeJSON(nd.spec(), n)
}

// hostFiles returns the files that a machine gets from its operating system.
func hostFiles(cluster string, n Node) []provision.File {
	id := sha256.Sum256([]byte(cluster + "/" + n.Name))
	return []provision.File{
		{Path: "/etc/hostname", Data: []byte(n.Name + "\n"), Mode: 0o644},
		{Path: "/etc/hosts", Data: []byte(hostsFile(n)), Mode: 0o644},
		// The file has no name server. Outside the cluster, none is reachable, and pods must not
		// use the machine's name servers.
		{Path: "/etc/resolv.conf", Data: []byte("options ndots:1\n"), Mode: 0o644},
		{Path: "/etc/machine-id", Data: []byte(hex.EncodeToString(id[:16]) + "\n"), Mode: 0o644},
	}
}

func hostsFile(n Node) string {
	out := "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
	for _, a := range n.Addresses() {
		out += a + " " + n.Name + "\n"
	}
	return out
}
