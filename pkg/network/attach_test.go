// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
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
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/test/unshare"
)

// realPlugins returns a directory with the CNI plugins that hack/tools.sh builds, and with
// Keelson's plugin, the program at the given path.
func realPlugins(t testing.TB, own string) string {
	t.Helper()
	built, err := filepath.Abs("../../bin/tools/cni")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, program := range map[string]string{pluginName: own, "portmap": filepath.Join(built, "portmap"),
		"bandwidth": filepath.Join(built, "bandwidth")} {
		if _, err := os.Stat(program); err != nil {
			t.Skip("the CNI plugins are not built")
		}
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// mustLimit checks the node's end of a pod's link: the pod must receive at most rate bytes per
// second, and the bridge may send a frame back to the port from which it came (hairpin).
func mustLimit(t *testing.T, pod *space, rate uint64) {
	t.Helper()
	end, err := netlink.LinkByIndex(pod.link("eth0").Attrs().ParentIndex)
	if err != nil {
		t.Fatal(err)
	}
	disciplines, err := netlink.QdiscList(end)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(disciplines, func(q netlink.Qdisc) bool {
		tbf, ok := q.(*netlink.Tbf)
		return ok &&
			tbf.Rate == rate
	}) {
		t.Errorf("no limit of %d: %v", rate, disciplines)
	}
	if port, err := netlink.LinkGetProtinfo(end); err != nil || !port.Hairpin {
		t.Errorf("no hairpin: %+v %v", port, err)
	}
}

// TestAttach attaches pods with the real plugins and checks that two of them can exchange packets.
// A sixth pod gets an address only after another pod is detached. Collect frees the address of a
// pod that the runtime no longer has.
func TestAttach(t *testing.T) {
	unshare.Need(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n := New(Config{ConfDir: t.TempDir(), BinDir: realPlugins(t, self), CacheDir: t.TempDir(),
		Log: slog.New(slog.DiscardHandler)})
	if err := n.configure(t.Context(), wanted{podCIDRs: prefixes("10.244.9.0/29", "fd00:9::/64"), mtu: 1400}); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(n.cfg.ConfDir, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(content)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t}
	sandbox := func(id string, pod *space) *libcni.RuntimeConf {
		return &libcni.RuntimeConf{
			ContainerID: id, IfName: "eth0", NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(pod.ns)),
			// The runtime reads these values from the pod's annotations. They are in bits (per
			// second).
			CapabilityArgs: map[string]any{"bandwidth": map[string]any{"ingressRate": 8_000_000, "ingressBurst": 80_000}},
		}
	}
	add := func(id string, pod *space) (types.Result, error) {
		return n.cni().AddNetworkList(t.Context(), list, sandbox(id, pod))
	}
	attach := func(id string) *labNode {
		t.Helper()
		pod := newSpace(t)
		result, err := add(id, pod)
		if err != nil {
			t.Fatal(err)
		}
		r, err := types100.NewResultFromResult(result)
		if err != nil || len(r.IPs) != 2 {
			t.Fatalf("%v %v", r, err)
		}
		if mtu := pod.link("eth0").Attrs().MTU; mtu != 1400 {
			t.Errorf("MTU %d", mtu)
		}
		mustLimit(t, pod, 1_000_000)
		ip, _ := netip.AddrFromSlice(r.IPs[0].Address.IP)
		return &labNode{node: node{name: id}, pod: pod, podIP: ip.Unmap()}
	}
	a, b := attach("a"), attach("b")
	l.mustReach(a, b)
	c := attach("c")
	for _, id := range []string{"d", "e"} {
		attach(id)
	}
	if _, err := add("f", newSpace(t)); err == nil ||
		!strings.Contains(err.Error(), "no IP addresses available in range set: 10.244.9.1-10.244.9.6") {
		t.Errorf("a sixth pod in a range for five: %v", err)
	}
	if err := n.cni().DelNetworkList(t.Context(), list, sandbox("c", c.pod)); err != nil {
		t.Fatal(err)
	}
	if f := attach("f"); f.podIP != c.podIP {
		t.Errorf("got %v, want the address that is free, %v", f.podIP, c.podIP)
	}

	dir := filepath.Join(n.cfg.CacheDir, addressesDir, networkName)
	held := func(p *labNode) bool {
		_, err := os.Stat(filepath.Join(dir, p.podIP.String()))
		return err == nil
	}
	if !held(a) || !held(b) {
		t.Fatal("addresses are not where they are looked for")
	}
	if err := n.Collect(t.Context(), []Attachment{{ContainerID: "a", IfName: "eth0"}}); err != nil {
		t.Fatal(err)
	}
	if !held(a) || held(b) {
		t.Errorf("held: a %v, b %v", held(a), held(b))
	}
	if _, err := b.pod.h.LinkByName("eth0"); err == nil {
		t.Error("b is still attached")
	}
	if err := n.Collect(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkAttach attaches and detaches a sandbox with the plugins that hack/tools.sh builds. It
// reports the plugins' CPU time.
func BenchmarkAttach(b *testing.B) {
	unshare.Need(b)
	built, err := filepath.Abs("../../bin/cni")
	if err != nil {
		b.Fatal(err)
	}
	n := New(Config{ConfDir: b.TempDir(), BinDir: realPlugins(b, built), CacheDir: b.TempDir(),
		Log: slog.New(slog.DiscardHandler)})
	content, err := renderConf(prefixes("10.244.9.0/24"), 1400, filepath.Join(n.cfg.CacheDir, addressesDir))
	if err != nil {
		b.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(content)
	if err != nil {
		b.Fatal(err)
	}
	spent := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	var adding, deleting, waited time.Duration
	for i := 0; b.Loop(); i++ {
		pod := newSpace(b)
		sandbox := &libcni.RuntimeConf{ContainerID: fmt.Sprint(i), IfName: "eth0",
			NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(pod.ns))}
		begun, start := spent(), time.Now()
		if _, err := n.cni().AddNetworkList(b.Context(), list, sandbox); err != nil {
			b.Fatal(err)
		}
		added := spent()
		waited += time.Since(start)
		if err := n.cni().DelNetworkList(b.Context(), list, sandbox); err != nil {
			b.Fatal(err)
		}
		adding, deleting = adding+added-begun, deleting+spent()-added
	}
	b.ReportMetric(adding.Seconds()*1000/float64(b.N), "add-cpu-ms/op")
	b.ReportMetric(waited.Seconds()*1000/float64(b.N), "add-ms/op")
	b.ReportMetric(deleting.Seconds()*1000/float64(b.N), "del-cpu-ms/op")
}
