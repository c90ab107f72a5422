// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/features"
	"keelson.dev/keelson/pkg/machine/members"
	"keelson.dev/keelson/pkg/provision"
)

// TestUseEtcd checks the flags of a control plane and its member of etcd if there can be several.
func TestUseEtcd(t *testing.T) {
	c := example()
	of, err := cluster(c)
	if err != nil {
		t.Fatal(err)
	}
	p := controlPlane(c, of)
	useEtcd(p, c)
	for program, tc := range map[string]struct{ args, want []string }{
		"API server": {p.APIServerArgs(), []string{"--etcd-servers=https://127.0.0.1:2379",
			"--etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt"}},
		"controller manager": {p.ControllerManagerArgs(), []string{"--leader-elect=true"}},
		"scheduler":          {p.SchedulerArgs(), []string{"--leader-elect=true"}},
		"etcd": {member(c, []string{"m1=https://192.0.2.11:2380"}, true).Args(), []string{"--name=m1",
			"--data-dir=/var/lib/etcd", "--advertise-client-urls=https://192.0.2.11:2379",
			"--listen-client-urls=https://192.0.2.11:2379,https://127.0.0.1:2379",
			"--listen-peer-urls=https://192.0.2.11:2380", "--initial-cluster-state=existing",
			"--cert-file=/etc/kubernetes/pki/etcd/server.crt"}},
	} {
		for _, flag := range tc.want {
			if !slices.Contains(tc.args, flag) {
				t.Errorf("%s: no flag %s in\n%s", program, flag, strings.Join(tc.args, "\n"))
			}
		}
		if _, err := argsContent(program, tc.args); err != nil {
			t.Error(err)
		}
	}
	for _, host := range []string{"127.0.0.1", "m1", "192.0.2.11", "2001:db8::11"} {
		if !slices.Contains(p.Hosts.Etcd, host) {
			t.Errorf("etcd's certificate is not for %s: %q", host, p.Hosts.Etcd)
		}
	}
	c.APIServer.AdvertiseAddress = "2001:db8::11"
	if got := peerURL(c); got != "https://[2001:db8::11]:2380" {
		t.Error(got)
	}
}

// TestCanSeparate checks that etcd is not separated while its data has an old format.
func TestCanSeparate(t *testing.T) {
	c := example()
	for _, version := range []string{"", features.Emulatable()[1]} {
		c.EmulatedVersion = version
		if err := canSeparate(c); err != nil {
			t.Error(err)
		}
	}
	c.EmulatedVersion = features.Emulatable()[0]
	if err := canSeparate(c); !errors.Is(err, errOldFormat) || !strings.Contains(err.Error(), c.EmulatedVersion) {
		t.Errorf("error %v", err)
	}
}

// TestCheckName checks that a machine does not take the name of another one that runs.
func TestCheckName(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	a, c := administrator{client: s.Client}, example()
	if err := a.checkName(t.Context(), c); err != nil {
		t.Errorf("no such node: %v", err)
	}
	for i, tc := range []struct {
		address string
		ready   v1.ConditionStatus
		want    error
	}{
		{"192.0.2.99", v1.ConditionTrue, members.ErrNameInUse},
		{"192.0.2.99", v1.ConditionUnknown, nil},
		{c.Node.Addresses[0], v1.ConditionTrue, nil},
	} {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Node.Name}, Status: v1.NodeStatus{
			Addresses:  []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: tc.address}},
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: tc.ready}},
		}}
		nodes := s.Client.CoreV1().Nodes()
		if _, err := nodes.Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := a.checkName(t.Context(), c); !errors.Is(err, tc.want) {
			t.Errorf("case %d: %v, want %v", i, err, tc.want)
		}
		if err := nodes.Delete(t.Context(), n.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestControlPlaneCommand(t *testing.T) {
	i := &Invitation{Server: "192.0.2.1:6443", Token: "a.b.c", Hashes: []string{"sha256:1"}}
	const want = "echo a.b.c | ctl join 192.0.2.1:6443 --control-plane --token-file - --ca-cert-hash sha256:1"
	if got := i.ControlPlaneCommand(); got != want {
		t.Error(got)
	}
}

func TestSurvival(t *testing.T) {
	for n, want := range map[int]string{
		2: "members. Add another control plane now.", 3: "survives the loss of 1.",
		4: "survives the loss of 1. It would survive the loss of 2 with one more.", 5: "survives the loss of 2.",
	} {
		if got := survival(n); !strings.HasSuffix(got, want) || !strings.HasPrefix(got, "The cluster has ") {
			t.Errorf("%d control planes: %s", n, got)
		}
	}
}

// TestReach checks that a port at which nothing listens is reported.
func TestReach(t *testing.T) {
	var ports []int
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, int(netip.MustParseAddrPort(l.Addr().String()).Port()))
		if len(ports) == 1 {
			_ = l.Close()
		}
	}
	if err := reach(t.Context(), "127.0.0.1", ports[1]); err != nil {
		t.Error(err)
	}
	if err := reach(t.Context(), "127.0.0.1", ports...); err == nil || !strings.Contains(err.Error(), "2380") {
		t.Errorf("error %v", err)
	}
}

// TestNoControlPlane checks that a machine without a control plane cannot invite others.
func TestNoControlPlane(t *testing.T) {
	if exists(argsFile(provision.APIServer)) {
		t.Skip("this machine has a control plane")
	}
	if _, err := InviteControlPlane(t.Context(), provision.TokenOptions{}, Deps{}); err == nil {
		t.Error("no error")
	}
	if m, err := Membership([]byte("certificate")); m != nil || err != nil {
		t.Errorf("%v, %v", m, err)
	}
}
