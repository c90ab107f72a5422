// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const nodeFile = `# the node's
nameserver 1.1.1.1
nameserver 1.0.0.1
search old.example
search example.com. corp.example .
options ndots:2 timeout:3
options ndots:1 rotate
`

func TestConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte(nodeFile), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := Settings{ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: "cluster.local", ResolvConf: file,
		NodeIPs: []string{"10.0.0.1", "fd00::1"}}
	noCluster, noFile, badFile := cluster, cluster, cluster
	noCluster.ClusterDNS, noFile.ResolvConf, badFile.ResolvConf = nil, "", file+"x"
	scoped := cluster
	scoped.ResolvConf = filepath.Join(t.TempDir(), "scoped.conf")
	if err := os.WriteFile(scoped.ResolvConf,
		[]byte("nameserver fe80::1%eth0\nnameserver 1.1.1.1\nnameserver fe80::2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	five := "5"
	many := &v1.PodDNSConfig{Nameservers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"}}
	for i := range 40 {
		many.Searches = append(many.Searches, fmt.Sprintf("s%d", i))
	}
	long := &v1.PodDNSConfig{Searches: []string{"a", strings.Repeat("x", 254), "b"}}
	clusterConf := "10.96.0.10 / ns.svc.cluster.local svc.cluster.local cluster.local example.com corp.example / ndots:5"
	nodeConf := "1.1.1.1 1.0.0.1 / example.com corp.example / ndots:1 timeout:3 rotate"

	for name, c := range map[string]struct {
		settings Settings
		policy   v1.DNSPolicy
		host     bool
		config   *v1.PodDNSConfig
		want     string
		warnings []string
		err      string
	}{
		"cluster first":         {cluster, v1.DNSClusterFirst, false, nil, clusterConf, nil, ""},
		"cluster first, host":   {cluster, v1.DNSClusterFirst, true, nil, nodeConf, nil, ""},
		"cluster with host":     {cluster, v1.DNSClusterFirstWithHostNet, true, nil, clusterConf, nil, ""},
		"invalid policy":        {cluster, "Nope", false, nil, clusterConf, nil, ""},
		"default":               {cluster, v1.DNSDefault, false, nil, nodeConf, nil, ""},
		"default, scoped":       {scoped, v1.DNSDefault, false, nil, "1.1.1.1 fe80::2 /  / ", nil, ""},
		"default, scoped, host": {scoped, v1.DNSDefault, true, nil, "fe80::1%eth0 1.1.1.1 fe80::2 /  / ", nil, ""},
		"default, no file":      {noFile, v1.DNSDefault, false, nil, "127.0.0.1 ::1 / . / ", nil, ""},
		"cluster first, no file": {noFile, v1.DNSClusterFirst, false, nil,
			"10.96.0.10 / ns.svc.cluster.local svc.cluster.local cluster.local / ndots:5", nil, ""},
		"no file there": {badFile, v1.DNSDefault, false, nil, "", nil,
			"open " + file + "x: no such file or directory"},
		"no cluster DNS": {noCluster, v1.DNSClusterFirst, false, nil, nodeConf, []string{
			`MissingClusterDNS: kubelet does not have ClusterDNS IP configured and cannot create Pod using ` +
				`"ClusterFirst" policy. Falling back to "Default" policy.`,
			`MissingClusterDNS: pod: "p_ns(u)". kubelet does not have ClusterDNS IP configured and cannot ` +
				`create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`,
		}, ""},
		"none": {cluster, v1.DNSNone, false,
			&v1.PodDNSConfig{Nameservers: []string{"8.8.8.8"}, Searches: []string{"x"},
				Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: &five}, {Name: "edns0"}}},
			"8.8.8.8 / x / ndots:5 edns0", nil, ""},
		"merged": {cluster, v1.DNSClusterFirst, false,
			&v1.PodDNSConfig{Nameservers: []string{"10.96.0.10", "8.8.8.8"},
				Searches: []string{"cluster.local", "x"}, Options: []v1.PodDNSConfigOption{{Name: "ndots"}, {Name: "debug"}}},
			"10.96.0.10 8.8.8.8 / ns.svc.cluster.local svc.cluster.local cluster.local example.com " +
				"corp.example x / ndots debug", nil, ""},
		"limits": {cluster, v1.DNSNone, false, many, "1.1.1.1 2.2.2.2 3.3.3.3 / " +
			strings.Join(many.Searches[:32], " ") + " / ", []string{
			"DNSConfigForming: Nameserver limits were exceeded, some nameservers have been omitted, the " +
				"applied nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3",
			"DNSConfigForming: Search Line limits were exceeded, some search paths have been omitted, the " +
				"applied search line is: " + strings.Join(many.Searches[:32], " "),
		}, ""},
		"long": {cluster, v1.DNSNone, false, long, " / a b / ", []string{
			"DNSConfigForming: Search Line limits were exceeded, some search paths have been omitted, the " +
				"applied search line is: a b",
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"},
				Spec:       v1.PodSpec{DNSPolicy: c.policy, HostNetwork: c.host, DNSConfig: c.config},
			}
			conf, warnings, err := Config(pod, c.settings)
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Fatalf("got %v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(conf.Servers, " ") + " / " + strings.Join(conf.Searches, " ") + " / " +
				strings.Join(conf.Options, " ")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			var messages []string
			for _, w := range warnings {
				messages = append(messages, w.Reason+": "+w.Message)
			}
			if diff := cmp.Diff(c.warnings, messages); diff != "" {
				t.Error(diff)
			}
		})
	}
}
