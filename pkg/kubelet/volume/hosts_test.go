// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestEtcHosts(t *testing.T) {
	node := filepath.Join(t.TempDir(), "node")
	if err := os.WriteFile(node, []byte("127.0.0.1 machine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	aliases := []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"a", "b"}}, {IP: "5.6.7.8", Hostnames: []string{"c"}}}
	const aliasText = "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n5.6.7.8\tc\n"
	for name, c := range map[string]struct {
		hosts EtcHosts
		want  string
	}{
		"plain": {EtcHosts{PodIPs: []string{"10.0.0.1", "fd00::1"}, HostName: "p"},
			hostsLocal + "10.0.0.1\tp\nfd00::1\tp\n"},
		"domain": {EtcHosts{PodIPs: []string{"10.0.0.1"}, HostName: "p", Domain: "s.ns.svc.cluster.local"},
			hostsLocal + "10.0.0.1\tp.s.ns.svc.cluster.local\tp\n"},
		"aliases": {EtcHosts{PodIPs: []string{"10.0.0.1"}, HostName: "p", Aliases: aliases},
			hostsLocal + "10.0.0.1\tp\n" + aliasText},
		"host network": {EtcHosts{PodIPs: []string{"10.0.0.1"}, HostName: "p", Aliases: aliases,
			HostNetwork: true, NodeFile: node},
			"# Kubernetes-managed hosts file (host network).\n127.0.0.1 machine\n" + aliasText},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "hosts")
			for range 2 { // the second call finds the file and changes it in place
				if err := c.hosts.Write(path); err != nil {
					t.Fatal(err)
				}
			}
			if got := read(t, path); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if got := mode(t, path); got != 0o644 {
				t.Errorf("mode %v", got)
			}
		})
	}
}
