// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// nodePorts returns a function that reports whether a configuration has the nodePortAddresses.
func nodePorts(want ...string) func(*Config) bool {
	return func(c *Config) bool { return slices.Equal(c.NodePortAddresses, want) }
}

func TestParse(t *testing.T) {
	tests := map[string]struct {
		reason string
		args   []string
		file   string
		want   func(*Config) bool
		err    string
	}{
		"Defaults": {
			reason: "as kube-proxy, but for the mode", args: []string{"--hostname-override=N1 "},
			want: func(c *Config) bool {
				return c.HealthzBindAddress == "0.0.0.0:10256" && c.MetricsBindAddress == "127.0.0.1:10249" &&
					c.Mode == "nftables" &&
					*c.NFTables.MasqueradeBit == 14 && c.Hostname == "n1" && c.DetectLocalMode == ByClusterCIDR
			},
		},
		"IPv6Addresses": {
			reason: "the bind address decides the others' family", file: "bindAddress: \"::\"\n",
			want: func(c *Config) bool {
				return c.HealthzBindAddress == "[::]:10256" && c.MetricsBindAddress == "[::1]:10249"
			},
		},
		"FileBeforeFlags": {
			reason: "flags do not count when there is a file",
			args:   []string{"--cluster-cidr=10.0.0.0/8", "--hostname-override=n2"},
			file:   "clusterCIDR: 10.244.0.0/16\nhostnameOverride: n1\nhealthzBindAddress: 127.0.0.1\n",
			want: func(c *Config) bool {
				return c.ClusterCIDR == "10.244.0.0/16" && c.Hostname == "n2" && c.HealthzBindAddress == "127.0.0.1:10256"
			},
		},
		"UnknownField": {reason: "strict", file: "clusterCidrs: x\n", err: "unknown field"},
		"WrongKind":    {reason: "another file", file: "kind: KubeletConfiguration\n", err: "KubeletConfiguration"},
		"BadMode": {reason: "no such mode", args: []string{"--proxy-mode=userspace"},
			err: "must be iptables,ipvs,nftables or blank"},
		"BadCIDR": {reason: "not a range", args: []string{"--cluster-cidr=10.244.0.0"},
			err: "must be a valid CIDR block"},
		"BadBit": {reason: "a mark has 32 bits", file: "nftables: {masqueradeBit: 32}\n",
			err: "must be within the range [0, 31]"},
		"Keywords": {reason: "any mix of keywords and ranges",
			args: []string{"--nodeport-addresses=primary,localhost,10.0.0.0/8,all"}, want: nodePorts("primary", "localhost",
				"10.0.0.0/8", "all")},
		"KeywordTwice": {reason: "keywords are unique", args: []string{"--nodeport-addresses=all,primary,all"},
			err: `NodePortAddresses[2]: Duplicate value: "all"`},
		"BadNodePorts": {reason: "no such keyword", args: []string{"--nodeport-addresses=node"},
			err: "must be a valid CIDR or one of the keywords 'primary', 'localhost', 'all'"},
		"NodePortsByDefault": {reason: "kube-proxy's default mode is iptables", args: nil, want: nodePorts()},
		"NodePortsOfNFTables": {reason: "the explicit mode limits them", args: []string{"--proxy-mode=nftables"},
			want: nodePorts("primary")},
		"NodePortsOfNFTablesInFile": {reason: "the explicit mode limits them", file: "mode: nftables\n",
			want: nodePorts("primary")},
		"NodePortsOfIPTables": {reason: "all addresses", file: "mode: iptables\n", want: nodePorts()},
		"NodePortsOfFile": {reason: "the field wins", file: "mode: nftables\nnodePortAddresses: [all]\n",
			want: nodePorts("all")},
		"BadHostPort": {reason: "no port number", args: []string{"--metrics-bind-address=1.2.3.4:x"},
			err: "must be a valid port"},
		"NoBridge": {reason: "the mode wants a name", args: []string{"--detect-local-mode=BridgeInterface"},
			err: "must not be empty"},
		"Arguments": {reason: "flags only", args: []string{"start"}, err: "does not take any arguments"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			args := tt.args
			if tt.file != "" {
				path := filepath.Join(t.TempDir(), "config")
				file := tt.file
				if !strings.Contains(file, "kind:") {
					file = head + file
				}
				if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--config="+path)
			}
			c, err := Parse(args, io.Discard)
			switch {
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("%s: error %v, want %q", tt.reason, err, tt.err)
			case tt.err == "" && err != nil:
				t.Errorf("%s: %v", tt.reason, err)
			case tt.want != nil && !tt.want(c):
				t.Errorf("%s: %+v", tt.reason, c)
			}
		})
	}
}
