// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/test/unshare"
)

// plugins writes scripts that act as CNI plugins. They answer VERSION. STATUS fails while a file
// "ill" exists in their directory. They record all other commands.
func plugins(t *testing.T) (dir, calls string) {
	t.Helper()
	dir = t.TempDir()
	calls = filepath.Join(dir, "calls")
	script := `#!/bin/sh
if [ "$CNI_COMMAND" = VERSION ]; then
	echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'
elif [ "$CNI_COMMAND" = STATUS ]; then
	[ ! -e ` + dir + `/ill ] || { echo '{"cniVersion":"1.1.0","code":50,"msg":"out of order"}'; exit 1; }
else
	echo "${0##*/} $CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME" >> ` + calls + `
fi
`
	for _, name := range []string{pluginName, "portmap", "bandwidth"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir, calls
}

func createNode(t *testing.T, c kubernetes.Interface, name, podCIDR, address string) {
	t.Helper()
	n, err := c.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeHostName, Address: name},
		{Type: v1.NodeInternalIP, Address: address}}
	if _, err := c.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	assign(t, c, name, podCIDR)
}

func assign(t *testing.T, c kubernetes.Interface, name, podCIDR string) {
	t.Helper()
	if podCIDR == "" {
		return
	}
	n, err := c.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Spec.PodCIDR, n.Spec.PodCIDRs = podCIDR, []string{podCIDR}
	if _, err := c.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until ok returns true, or until the test's deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		if t.Context().Err() != nil {
			t.Fatal(what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func routesTo(t *testing.T) []string {
	t.Helper()
	rs, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: routeProtocol},
		netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range rs {
		out = append(out, fmt.Sprintf("%v via %v", r.Dst, r.Gw))
	}
	slices.Sort(out)
	return out
}

// TestRun starts the network on a node without a pod range. Then the node gets a range and two
// other nodes are added, and one of these is deleted.
func TestRun(t *testing.T) {
	unshare.Need(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "eth0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "peer0"}); err != nil {
		t.Fatal(err)
	}
	s := &space{t: t, h: &netlink.Handle{}}
	s.address("eth0", "10.50.0.11/24")
	s.up("peer0")
	t.Cleanup(func() { s.must(netlink.LinkDel(s.link("eth0"))) })

	api := testserver.Start(t, testserver.Options{}).Client
	createNode(t, api, "n1", "", "10.50.0.11")
	createNode(t, api, "n2", "10.244.1.0/24", "10.50.0.12")
	bin, _ := plugins(t)
	cfg := Config{NodeName: "n1", Client: api, ConfDir: filepath.Join(t.TempDir(), "net.d"), BinDir: bin,
		CacheDir: t.TempDir(), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)}
	n := New(cfg)
	run := func(n *Network) (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- n.Run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	stop := run(n)
	eventually(t, "report of the missing range", func() bool {
		return n.Ready() != nil && n.Ready().Error() == "node n1 has no pod CIDR"
	})
	assign(t, api, "n1", "10.244.0.0/24")
	eventually(t, "ready", func() bool { return n.Ready() == nil })
	var conf confList
	content, err := os.ReadFile(filepath.Join(cfg.ConfDir, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &conf); err != nil ||
		!slices.Equal(conf.Plugins[0].Subnets, prefixes("10.244.0.0/24")) || conf.Plugins[0].MTU != 1500 {
		t.Errorf("%v %s", err, content)
	}
	eventually(t, "routes to itself and n2", func() bool {
		return slices.Equal(routesTo(t), []string{"10.244.0.0/24 via <nil>", "10.244.1.0/24 via 10.50.0.12"})
	})
	createNode(t, api, "n3", "10.244.2.0/24", "10.50.0.13")
	eventually(t, "route to n3", func() bool { return slices.Contains(routesTo(t), "10.244.2.0/24 via 10.50.0.13") })

	// The network stays when the process ends. A new process must be ready at once, and notice the
	// changes that happened meanwhile.
	stop()
	if err := api.CoreV1().Nodes().Delete(t.Context(), "n2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := routesTo(t); len(got) != 3 {
		t.Errorf("routes %v", got)
	}
	n = New(cfg)
	n.resume(t.Context())
	if err := n.Ready(); err != nil {
		t.Errorf("not ready after a restart: %v", err)
	}
	stop = run(n)
	eventually(t, "route to n2 is gone", func() bool { return len(routesTo(t)) == 2 })
	stop()
	if err := n.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(cfg.ConfDir, ConfigFile)); err == nil || len(routesTo(t)) != 0 {
		t.Errorf("left: %v", routesTo(t))
	}
}

func TestMissingPlugin(t *testing.T) {
	bin, _ := plugins(t)
	if err := os.Remove(filepath.Join(bin, pluginName)); err != nil {
		t.Fatal(err)
	}
	n := New(Config{ConfDir: t.TempDir(), BinDir: bin, CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	err := n.configure(t.Context(), wanted{podCIDRs: prefixes("10.244.0.0/24"), mtu: 1500})
	if err == nil || !strings.Contains(err.Error(), `failed to find plugin "keelson"`) || n.Ready() == nil {
		t.Errorf("%v, ready %v", err, n.Ready())
	}
	if entries, _ := os.ReadDir(n.cfg.ConfDir); len(entries) != 0 {
		t.Errorf("the runtime would see %v", entries)
	}
}

// TestIllPlugin checks that the network is not ready while a plugin's STATUS fails.
func TestIllPlugin(t *testing.T) {
	unshare.Need(t)
	bin, _ := plugins(t)
	ill := filepath.Join(bin, "ill")
	if err := os.WriteFile(ill, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := New(Config{ConfDir: t.TempDir(), BinDir: bin, CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	w := wanted{podCIDRs: prefixes("10.244.0.0/24"), mtu: 1500}
	if err := n.configure(t.Context(), w); err == nil || !strings.Contains(err.Error(), "out of order") ||
		n.Ready() == nil {
		t.Errorf("%v, ready %v", err, n.Ready())
	}
	if err := os.Remove(ill); err != nil {
		t.Fatal(err)
	}
	if err := n.configure(t.Context(), w); err != nil || n.Ready() != nil {
		t.Errorf("%v, ready %v", err, n.Ready())
	}
}

// TestCollect checks that Collect keeps the attachments of sandboxes in use, detaches a sandbox that
// CNI has recorded, and calls the plugin to free the other addresses.
func TestCollect(t *testing.T) {
	unshare.Need(t)
	bin, calls := plugins(t)
	n := New(Config{ConfDir: t.TempDir(), BinDir: bin, CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err := n.Collect(t.Context(), nil); err != nil {
		t.Fatalf("on a new node: %v", err)
	}
	if err := n.configure(t.Context(), wanted{podCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")},
		mtu: 1500}); err != nil {
		t.Fatal(err)
	}
	results := filepath.Join(n.cfg.CacheDir, "results")
	if err := os.MkdirAll(results, 0o700); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(n.cfg.ConfDir, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"used", "gone"} {
		cached, err := json.Marshal(map[string]any{
			"kind": libcni.CNICacheV1, "containerId": id, "ifName": "eth0", "networkName": networkName, "netns": "",
			"config": content, "result": map[string]any{"cniVersion": cniVersion},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(results, networkName+"-"+id+"-eth0"), cached, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Collect(t.Context(), []Attachment{{ContainerID: "used", IfName: "eth0"}}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(calls)
	if want := "keelson DEL gone eth0\nkeelson GC  \n"; err != nil || string(got) != want {
		t.Errorf("plugins were called: %q %v, want %q", got, err, want)
	}
}

// TestLinkPlugin checks that the plugin is linked if the directory has no plugin of its name or
// only a broken link, and that an existing plugin is kept.
func TestLinkPlugin(t *testing.T) {
	dir, program := filepath.Join(t.TempDir(), "bin"), filepath.Join(t.TempDir(), "cni")
	link := filepath.Join(dir, pluginName)
	step := func(what, want string) {
		t.Helper()
		if err := linkPlugin(program, dir); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got, _ := os.Readlink(link); got != want {
			t.Errorf("%s: a link to %q, want %q", what, got, want)
		}
	}
	step("no program", "")
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	step("no directory", program)
	step("again", program)
	for target, want := range map[string]string{"/nowhere": program, "/bin/sh": "/bin/sh"} {
		if err := errors.Join(os.Remove(link), os.Symlink(target, link)); err != nil {
			t.Fatal(err)
		}
		step("a link to "+target, want)
	}
}
