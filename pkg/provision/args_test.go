// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"io"
	"net/netip"
	"slices"
	"testing"

	"keelson.dev/keelson/pkg/apiserver/config"
)

// TestArgsOnMachines checks flags that depend on the description of the cluster and the machine.
func TestArgsOnMachines(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(*ControlPlane)
		args      func(*ControlPlane) []string
		want, not []string
	}{
		"API server": {
			args: (*ControlPlane).APIServerArgs,
			want: []string{
				"--data-dir=/var/lib/etcd", "--bind-address=::", "--secure-port=6443", "--advertise-address=10.60.0.11",
				"--client-ca-file=/etc/kubernetes/pki/ca.crt", "--service-cluster-ip-range=10.30.0.0/20,fd30::/112",
				"--service-account-issuer=https://kubernetes.default.svc.example.internal", "--outbound-deny=special",
				"--encryption-provider-config=/etc/kubernetes/encryption.yaml",
				"--audit-policy-file=/etc/kubernetes/audit-policy.yaml", "--audit-log-path=/var/log/keelson/audit.log",
			},
			not: []string{"--etcd-", "--node-address-ranges", "--emulated-version", "--serve-store-snapshots"},
		},
		"API server with a separate etcd": {
			change: func(p *ControlPlane) {
				p.EtcdServers = []string{"https://10.60.0.11:2379", "https://10.60.0.12:2379"}
				p.EtcdFiles = KubeadmEtcdFiles()
			},
			args: (*ControlPlane).APIServerArgs,
			want: []string{
				"--etcd-servers=https://10.60.0.11:2379,https://10.60.0.12:2379", "--etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt",
				"--etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt",
			},
			not: []string{"--data-dir"},
		},
		"API server with restrictions": {
			change: func(p *ControlPlane) {
				p.Deny, p.Cluster.NodeRanges = []netip.Addr{netip.MustParseAddr("fd60::1")}, "10.60.0.0/24"
				p.Cluster.EmulatedVersion = "1.36"
			},
			args: (*ControlPlane).APIServerArgs,
			want: []string{
				"--outbound-deny=special,fd60::1/128", "--node-address-ranges=10.60.0.0/24", "--emulated-version=1.36",
			},
		},
		"API server of machines": {
			change: func(p *ControlPlane) { p.Cluster.Machines = true },
			args:   (*ControlPlane).APIServerArgs,
			want:   []string{"--serve-store-snapshots"},
		},
		"controller manager of machines": {
			change: func(p *ControlPlane) { p.Cluster.Machines = true },
			args:   (*ControlPlane).ControllerManagerArgs,
			want:   []string{"--approve-proxy-clients=true", "--controllers=*,token-cleaner-controller"},
		},
		"controller manager": {
			args: (*ControlPlane).ControllerManagerArgs,
			want: []string{
				"--kubeconfig=/etc/kubernetes/controller-manager.conf", "--cluster-cidr=10.20.0.0/16,fd20::/48",
				"--leader-elect=false", "--bind-address=127.0.0.1",
				"--cluster-signing-kubelet-serving-cert-file=/etc/kubernetes/pki/kubelet-ca.crt",
			},
			not: []string{"--load-balancer-addresses", "--emulated-version"},
		},
		"controller manager of several": {
			change: func(p *ControlPlane) { p.LeaderElect, p.Cluster.LoadBalancers = true, "10.60.0.200-10.60.0.210" },
			args:   (*ControlPlane).ControllerManagerArgs,
			want:   []string{"--leader-elect=true", "--load-balancer-addresses=10.60.0.200-10.60.0.210"},
		},
		"scheduler": {
			args: (*ControlPlane).SchedulerArgs,
			want: []string{"--config=/etc/kubernetes/scheduler.yaml", "--tls-cert-file=/etc/kubernetes/pki/scheduler.crt"},
			not:  []string{"--leader-elect"},
		},
		"scheduler of several": {
			change: func(p *ControlPlane) { p.LeaderElect = true },
			args:   (*ControlPlane).SchedulerArgs,
			want:   []string{"--leader-elect=true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := machine("")
			if tc.change != nil {
				tc.change(p)
			}
			args := tc.args(p)
			checkArgs(t, args, tc.want, tc.not)
			if again := tc.args(p); !slices.Equal(args, again) {
				t.Errorf("other flags, or in another order:\n%q\n%q", args, again)
			}
		})
	}
}

// TestEtcdArgs checks the flags of an etcd member that listens at two addresses, and that only a
// member that joins has the flag for it.
func TestEtcdArgs(t *testing.T) {
	e := &Etcd{
		Name: "m2", Store: "/var/lib/etcd", Dir: "/etc/kubernetes", Files: KubeadmEtcdFiles(), Token: "prod", Joins: true,
		Client: []string{"https://10.60.0.12:2379", "https://127.0.0.1:2379"}, Peer: []string{"https://10.60.0.12:2380"},
		Members: []string{"m1=https://10.60.0.11:2380", "m2=https://10.60.0.12:2380"},
	}
	checkArgs(t, e.Args(), []string{
		"--name=m2", "--data-dir=/var/lib/etcd", "--listen-client-urls=https://10.60.0.12:2379,https://127.0.0.1:2379",
		"--advertise-client-urls=https://10.60.0.12:2379", "--initial-advertise-peer-urls=https://10.60.0.12:2380",
		"--initial-cluster=m1=https://10.60.0.11:2380,m2=https://10.60.0.12:2380", "--initial-cluster-state=existing",
		"--client-cert-auth", "--peer-client-cert-auth", "--trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
		"--cert-file=/etc/kubernetes/pki/etcd/server.crt", "--peer-key-file=/etc/kubernetes/pki/etcd/peer.key",
	}, nil)
	e.Joins = false
	checkArgs(t, e.Args(), nil, []string{"--initial-cluster-state"})
}

// TestHardenedAPIServer checks that the API server accepts the hardening flags, and that they have
// the effects that the documentation describes.
func TestHardenedAPIServer(t *testing.T) {
	p, _ := machine("")
	cfg, err := config.Parse(p.APIServerArgs(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.AnonymousAuth || cfg.Profiling || cfg.ExtendTokenExpiration || !cfg.ServiceAccountLookup {
		t.Errorf("anonymous %t, profiling %t, long tokens %t, look-up %t", cfg.AnonymousAuth, cfg.Profiling,
			cfg.ExtendTokenExpiration, cfg.ServiceAccountLookup)
	}
	for _, name := range []string{"NodeRestriction", "NodeOwnership", "DenyServiceExternalIPs", "EndpointOwnership"} {
		if !slices.Contains(cfg.EnableAdmission, name) {
			t.Errorf("admission plugin %s is not on", name)
		}
	}
	if !slices.Equal(cfg.AuthorizationModes, []string{config.ModeNode, config.ModeRBAC}) {
		t.Errorf("authorization %v", cfg.AuthorizationModes)
	}
	policy, err := cfg.Transport.Outbound()
	if err != nil || !policy.Restricts() {
		t.Errorf("outbound policy %v, %v", policy, err)
	}
	if cfg.Audit.PolicyFile == "" || cfg.Audit.Log.Path == "" || cfg.Audit.Log.MaxAge < 30 {
		t.Errorf("audit %+v", cfg.Audit)
	}
}
