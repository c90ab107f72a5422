// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/leaktest"
	"keelson.dev/keelson/test/unshare"
)

// TestMain runs the plugin instead of the tests if CNI executes the test binary.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		Main(clock.Real())
		return
	}
	unshare.Run(leaktest.Checked{M: m}, unshare.Network)
}

// network is a network whose plugin is the test binary. The delegated plugins are scripts that
// record their calls.
type network struct {
	t     testing.TB
	dir   string
	cni   *libcni.CNIConfig
	list  *libcni.NetworkConfigList
	calls string
}

// echo is a script for a delegated plugin. It returns the previous result, but fails if the
// command's name is in a file.
const echo = `#!/bin/sh
conf=$(cat)
echo "${0##*/} $CNI_COMMAND $CNI_CONTAINERID" >> DIR/calls
[ "$(cat DIR/refuse 2>/dev/null)" != "${0##*/} $CNI_COMMAND" ] || { echo '{"cniVersion":"1.1.0","code":100,"msg":"refused"}'; exit 1; }
[ "$CNI_COMMAND" != ADD ] || echo "$conf" | sed 's/.*"prevResult"://; s/}$//'
`

func newNetwork(t testing.TB, ranges string) *network {
	t.Helper()
	unshare.Need(t)
	n := &network{t: t, dir: t.TempDir()}
	n.calls = filepath.Join(n.dir, "calls")
	self, err := os.Executable()
	must(t, errors.Join(err, os.Symlink(self, filepath.Join(n.dir, "own"))))
	for _, name := range []string{"portmap", "bandwidth"} {
		must(t, os.WriteFile(filepath.Join(n.dir, name), []byte(strings.ReplaceAll(echo, "DIR", n.dir)), 0o700))
	}
	n.list, err = libcni.NetworkConfFromBytes(
		fmt.Appendf(nil,
			`{"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "own", "bridge": "br0", "mtu": 1400, "subnets": [%s],
		"dataDir": %q, "capabilities": {"portMappings": true, "bandwidth": true}}]}`, ranges, n.dir))
	must(t, err)
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{n.dir}, n.dir, nil)
	t.Cleanup(func() {
		if bridge, err := netlink.LinkByName("br0"); err == nil {
			must(t, netlink.LinkDel(bridge))
		}
	})
	return n
}

// sandbox creates a network namespace for a sandbox with an ID.
func sandbox(t testing.TB, id string) (*libcni.RuntimeConf, *netlink.Handle) {
	t.Helper()
	made := make(chan netns.NsHandle)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		ns, err := netns.New()
		if err != nil {
			t.Error(err)
		}
		made <- ns
	}()
	ns := <-made
	h, err := netlink.NewHandleAt(ns)
	must(t, err)
	t.Cleanup(func() { h.Close(); ns.Close() })
	return &libcni.RuntimeConf{ContainerID: id, IfName: "eth0",
		NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(ns))}, h
}

func (n *network) add(rt *libcni.RuntimeConf) (*types100.Result, error) {
	n.t.Helper()
	result, err := n.cni.AddNetworkList(n.t.Context(), n.list, rt)
	if err != nil {
		return nil, err
	}
	// Detach the sandbox, because its namespace may exist longer than the test.
	n.t.Cleanup(func() { _ = n.cni.DelNetworkList(context.Background(), n.list, rt) })
	return types100.NewResultFromResult(result)
}

func (n *network) del(rt *libcni.RuntimeConf) {
	n.t.Helper()
	must(n.t, n.cni.DelNetworkList(n.t.Context(), n.list, rt))
}

// mustHave checks the number of allocated addresses, and the number of the bridge's ports.
func (n *network) mustHave(given, ports int) {
	n.t.Helper()
	taken, err := addresses{dir: filepath.Join(n.dir, "net")}.taken()
	must(n.t, err)
	links, err := netlink.LinkList()
	must(n.t, err)
	found := 0
	for _, l := range links {
		if l.Attrs().MasterIndex != 0 {
			found++
		}
	}
	if len(taken) != given || found != ports {
		n.t.Errorf("%d addresses and %d ports, want %d and %d", len(taken), found, given, ports)
	}
}

func (n *network) mustCall(want string) {
	n.t.Helper()
	got, _ := os.ReadFile(n.calls)
	if string(got) != want {
		n.t.Errorf("plugins were called:\n%swant:\n%s", got, want)
	}
	_ = os.Remove(n.calls)
}

// TestAttach checks the interface of an attached sandbox, its addresses and routes, and the result
// for the runtime. Then it detaches sandboxes in both possible ways.
func TestAttach(t *testing.T) {
	n := newNetwork(t, `"10.9.0.0/24", "fd09::/64"`)
	rt, inside := sandbox(t, "a")
	result, err := n.add(rt)
	must(t, err)
	link, err := inside.LinkByName("eth0")
	must(t, err)
	if a := link.Attrs(); a.MTU != 1400 || a.Flags&net.FlagUp == 0 || a.HardwareAddr.String() != "0a:58:0a:09:00:02" {
		t.Errorf("%+v", a)
	}
	for i, want := range []string{"10.9.0.2/24", "fd09::2/64"} {
		p := netip.MustParsePrefix(want)
		gw := gateway(p.Masked())
		if ip := result.IPs[i]; ip.Address.String() != want || ip.Gateway.String() != gw.String() ||
			result.Interfaces[*ip.Interface].Sandbox != rt.NetNS {
			t.Errorf("told %v", ip)
		}
		if routes, err := inside.RouteGet(gw.Prev().Prev().AsSlice()); err != nil || !routes[0].Gw.Equal(gw.AsSlice()) {
			t.Errorf("routes %v %v", routes, err)
		}
	}
	addrs, err := inside.AddrList(link, netlink.FAMILY_V6)
	must(t, err)
	for _, a := range addrs {
		if a.Scope == int(netlink.SCOPE_UNIVERSE) && a.Flags&0x40 != 0 { // 0x40 is IFA_F_TENTATIVE (not usable yet)
			t.Errorf("%v cannot be used yet", a)
		}
	}
	if ra, err := os.ReadFile("/proc/sys/net/ipv6/conf/br0/accept_ra"); err != nil ||
		strings.TrimSpace(string(ra)) != "0" {
		t.Errorf("the bridge listens to routers: %q %v", ra, err)
	}
	must(t, n.cni.CheckNetworkList(t.Context(), n.list, rt))
	n.mustHave(2, 1)
	n.mustCall("")
	n.del(rt)
	n.mustHave(0, 0)
	n.del(rt)
	rt.NetNS = filepath.Join(n.dir, "gone")
	n.del(rt)
	rt.NetNS = ""
	n.del(rt)
}

// TestNamespaceLost checks that the link is removed even if the sandbox's namespace no longer
// exists.
func TestNamespaceLost(t *testing.T) {
	n := newNetwork(t, `"10.9.0.0/24"`)
	rt, _ := sandbox(t, "a")
	_, err := n.add(rt)
	must(t, err)
	rt.NetNS = ""
	n.del(rt)
	n.mustHave(0, 0)
}

// TestTwice checks that a second attempt to attach a sandbox fails, and that the sandbox keeps its
// addresses when the runtime reverses that attempt.
func TestTwice(t *testing.T) {
	n := newNetwork(t, `"10.9.0.0/24"`)
	rt, inside := sandbox(t, "a")
	_, err := n.add(rt)
	must(t, err)
	if result, err := n.add(rt); err == nil {
		t.Errorf("again: %v", result)
	}
	if _, err := inside.LinkByName("eth0"); err != nil {
		t.Error(err)
	}
	n.mustHave(1, 1)
	must(t, n.cni.CheckNetworkList(t.Context(), n.list, rt))
}

// TestCheck checks that CHECK fails after each of several changes to an attached sandbox.
func TestCheck(t *testing.T) {
	for name, change := range map[string]func(n *network, inside *netlink.Handle) error{
		"no link": func(_ *network, inside *netlink.Handle) error {
			link, err := inside.LinkByName("eth0")
			return errors.Join(err, inside.LinkDel(link))
		},
		"no address": func(_ *network, inside *netlink.Handle) error {
			link, err := inside.LinkByName("eth0")
			return errors.Join(err, inside.AddrDel(link, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("10.9.0.2/24"))}))
		},
		"another's address": func(n *network, _ *netlink.Handle) error {
			return os.WriteFile(filepath.Join(n.dir, "net", "10.9.0.2"), []byte("b\r\neth0"), 0o600)
		},
		"nobody's address": func(n *network, _ *netlink.Handle) error {
			return os.Remove(filepath.Join(n.dir, "net", "10.9.0.2"))
		},
		"a plugin complains": func(n *network, _ *netlink.Handle) error {
			return os.WriteFile(filepath.Join(n.dir, "refuse"), []byte("portmap CHECK"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, `"10.9.0.0/24"`)
			rt, inside := sandbox(t, "a")
			rt.CapabilityArgs = map[string]any{"portMappings": []any{map[string]any{"hostPort": 80, "containerPort": 80}}}
			_, err := n.add(rt)
			must(t, err)
			must(t, n.cni.CheckNetworkList(t.Context(), n.list, rt))
			must(t, change(n, inside))
			if err := n.cni.CheckNetworkList(t.Context(), n.list, rt); err == nil {
				t.Error("no error")
			}
		})
	}
}

// TestDelegates checks that the delegated plugins run in order, and only for sandboxes that need
// them. If one fails, no address or link must remain.
func TestDelegates(t *testing.T) {
	n := newNetwork(t, `"10.9.0.0/24"`)
	rt, _ := sandbox(t, "a")
	rt.CapabilityArgs = map[string]any{
		"portMappings": []any{map[string]any{"hostPort": 80, "containerPort": 80}},
		"bandwidth":    map[string]any{"ingressRate": 1000, "ingressBurst": 1000},
	}
	result, err := n.add(rt)
	if err != nil || len(result.IPs) != 1 || result.Interfaces[2].Sandbox != rt.NetNS {
		t.Fatal(result, err)
	}
	n.mustCall("portmap ADD a\nbandwidth ADD a\n")
	n.del(rt)
	n.mustCall("bandwidth DEL a\nportmap DEL a\n")
	n.mustHave(0, 0)

	must(t, os.WriteFile(filepath.Join(n.dir, "refuse"), []byte("bandwidth ADD"), 0o600))
	if _, err := n.add(rt); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v", err)
	}
	n.mustCall("portmap ADD a\nbandwidth ADD a\nbandwidth DEL a\nportmap DEL a\n")
	n.mustHave(0, 0)
	must(t, os.WriteFile(filepath.Join(n.dir, "refuse"), []byte("bandwidth STATUS"), 0o600))
	if err := n.cni.GetStatusNetworkList(t.Context(), n.list); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("status: %v", err)
	}
}

// TestBridgePluginsLink checks that a sandbox that the plugin bridge has attached can be detached,
// although the name of the node's end is random.
func TestBridgePluginsLink(t *testing.T) {
	n := newNetwork(t, `"10.9.0.0/24"`)
	other, _ := sandbox(t, "b")
	_, err := n.add(other) // creates the bridge
	must(t, err)
	rt, inside := sandbox(t, "a")
	ns, err := netns.GetFromPath(rt.NetNS)
	must(t, err)
	defer ns.Close()
	bridge, err := netlink.LinkByName("br0")
	must(t, err)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = "veth12345678", bridge.Attrs().Index
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}))
	must(t, os.WriteFile(filepath.Join(n.dir, "net", "10.9.0.7"), []byte("a\r\neth0"), 0o600))
	n.mustHave(2, 2)
	n.del(rt)
	n.mustHave(1, 1)
	if _, err := inside.LinkByName("eth0"); err == nil {
		t.Error("still attached")
	}
}
