// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/proxy/conntrack"
	"keelson.dev/keelson/pkg/proxy/ruleset"
	"keelson.dev/keelson/test/unshare"
)

// flowWorld has a few services whose frontends often collide, flows in the kernel's connection
// tracking table, and the parts of a Proxy that delete stale flows.
type flowWorld struct {
	*Proxy
	*family
	handle *netlink.Handle
	kernel *ruleset.Contents // model of the kernel's table
	ports  map[ruleset.Name]*ruleset.Port
	flows  map[netip.AddrPort]flowModel // by the client's address and port
	client int
}

// flowModel is a flow that must exist, unless it was stale when the proxy checked it.
type flowModel struct {
	to, from netip.AddrPort
	ours     bool // the destination was translated by the proxy's rules
}

var (
	flowNode      = netip.MustParseAddr("198.18.0.1") // an address of the node
	flowElsewhere = netip.MustParseAddr("198.18.9.9")
	flowVIPs      = addrs("198.18.1.1", "198.18.1.2", "198.18.1.3")
	flowExternals = addrs("198.18.2.1", "198.18.0.1")
	flowPorts     = []uint16{53, 30001, 30002}
	flowPods      = addrs("198.18.3.1", "198.18.3.2", "198.18.3.3")
)

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// owner returns the port that has a frontend according to a simple model: the oldest port that
// claims the frontend, if it also has its own cluster IP.
func (w *flowWorld) owner(f ruleset.Frontend) *ruleset.Port {
	claimed := func(f ruleset.Frontend) *ruleset.Port {
		var best ruleset.Name
		for name, p := range w.ports {
			if !slices.Contains(p.Frontends(), f) {
				continue
			}
			if b := w.ports[best]; b == nil || p.Created < b.Created || p.Created == b.Created && name < best {
				best = name
			}
		}
		return w.ports[best]
	}
	p := claimed(f)
	if p == nil || claimed(p.VIP) != p {
		return nil
	}
	return p
}

// at returns the port that receives packets to an address according to the model.
func (w *flowWorld) at(to netip.AddrPort) *ruleset.Port {
	f := ruleset.Frontend{Addr: to.Addr(), Protocol: ruleset.UDP, Port: to.Port()}
	if p := w.owner(f); p != nil || to.Addr() != flowNode {
		return p
	}
	f.Addr = netip.IPv4Unspecified()
	return w.owner(f)
}

func (w *flowWorld) right(f flowModel) bool {
	if p := w.at(f.to); p != nil {
		return slices.Contains(slices.Collect(p.Serving.All()), f.from)
	}
	return !f.ours
}

// open creates a flow in the kernel's connection tracking table.
func (w *flowWorld) open(t *rapid.T, f flowModel) {
	w.client++
	from := netip.AddrPortFrom(netip.MustParseAddr("198.18.4.1"), uint16(w.client))
	w.flows[from] = f
	err := w.handle.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, &netlink.ConntrackFlow{
		FamilyType: unix.AF_INET, TimeOut: 3600,
		Forward: netlink.IPTuple{Protocol: unix.IPPROTO_UDP, SrcIP: from.Addr().AsSlice(), SrcPort: from.Port(),
			DstIP: f.to.Addr().AsSlice(), DstPort: f.to.Port()},
		Reverse: netlink.IPTuple{Protocol: unix.IPPROTO_UDP, SrcIP: f.from.Addr().AsSlice(),
			SrcPort: f.from.Port(), DstIP: from.Addr().AsSlice(), DstPort: from.Port()},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// commit applies changes to the model of the kernel's table.
func (w *flowWorld) commit(c ruleset.Changes) {
	for _, e := range c.Delete {
		delete(w.kernel[e.Set], e.Key)
	}
	for _, e := range c.Add {
		w.kernel[e.Set][e.Key] = e.Value
	}
}

// clean does what the proxy does in a round of changes until no work is left.
func (w *flowWorld) clean(t *rapid.T) {
	w.holdFlows()
	w.commit(w.table.Take())
	w.cleanFlows()
	if !w.cleaner.round(false) {
		t.Fatal("flows not cleaned")
	}
	w.forgetFlows(w.dirty.Take().cleaned)
	w.commit(w.table.Take())
	w.check(t)
}

// check compares the flows in the kernel with those that are valid according to the model.
func (w *flowWorld) check(t *rapid.T) {
	list, err := w.handle.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	there := map[netip.AddrPort]bool{}
	for _, f := range list {
		a, _ := netip.AddrFromSlice(f.Forward.SrcIP)
		there[netip.AddrPortFrom(a.Unmap(), f.Forward.SrcPort)] = true
	}
	for from, f := range w.flows {
		right := w.right(f)
		if right != there[from] {
			t.Fatalf("flow %+v: valid: %v, exists in the kernel: %v", f, right, there[from])
		}
		if !right {
			delete(w.flows, from)
		}
	}
	for key := range w.kernel[ruleset.Services] {
		if c, ok := ruleset.ParseValue(w.kernel[ruleset.Services][key]); ok && c.Action == 0 {
			t.Fatalf("frontend %x is kept although its flows are gone", key)
		}
	}
}

func (w *flowWorld) restart() {
	w.table = ruleset.NewTable(ruleset.IPv4)
	w.table.Adopt(w.kernel)
	for n, p := range w.ports {
		w.table.Set(n, p)
	}
	w.commit(w.table.Diff(w.kernel))
}

func drawPort(t *rapid.T) *ruleset.Port {
	var serving []netip.AddrPort
	for i, a := range flowPods {
		if rapid.Bool().Draw(t, fmt.Sprint("pod", i)) {
			serving = append(serving, netip.AddrPortFrom(a, 5353))
		}
	}
	p := &ruleset.Port{
		VIP: ruleset.Frontend{
			Addr: rapid.SampledFrom(flowVIPs).Draw(t, "vip"), Port: rapid.SampledFrom(flowPorts[:2]).Draw(t, "port"),
			Protocol: rapid.SampledFrom([]ruleset.Protocol{ruleset.UDP, ruleset.UDP, ruleset.TCP}).Draw(t, "protocol"),
		},
		Created:  int64(rapid.IntRange(0, 2).Draw(t, "created")),
		NodePort: rapid.SampledFrom([]uint16{0, 30001, 30002}).Draw(t, "nodePort"),
		Cluster:  ruleset.Pack(serving), Serving: ruleset.Pack(serving), Anywhere: len(serving) > 0,
	}
	for _, a := range flowExternals {
		if rapid.Bool().Draw(t, a.String()) {
			p.External = append(p.External, a)
		}
	}
	return p
}

// TestFlowsFollowServices changes services at random, with transactions of random sizes, and
// restarts the proxy at random. When the proxy has deleted stale flows, exactly those UDP flows
// must exist that are valid according to a simple model of the services.
func TestFlowsFollowServices(t *testing.T) {
	unshare.Need(t)
	handle, err := netlink.NewHandle(unix.NETLINK_NETFILTER, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	lo, err := handle.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	address := &netlink.Addr{IPNet: netlink.NewIPNet(flowNode.AsSlice())}
	if err := handle.AddrAdd(lo, address); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = handle.AddrDel(lo, address) }() // an error can be ignored, because the namespace ends with the test
	flows, err := conntrack.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer flows.Close()
	rapid.Check(t, func(t *rapid.T) {
		if err := handle.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
			t.Fatal(err)
		}
		w := &flowWorld{
			family: &family{Family: ruleset.IPv4, table: ruleset.NewTable(ruleset.IPv4)}, handle: handle,
			kernel: ruleset.NewContents(),
			ports:  map[ruleset.Name]*ruleset.Port{}, flows: map[netip.AddrPort]flowModel{},
		}
		log, m, d := slog.New(slog.DiscardHandler), newMetrics(prometheus.NewRegistry()), newDirty(time.Time{})
		w.Proxy = &Proxy{log: log, metrics: m, dirty: d, families: []*family{w.family},
			cleaner: newCleaner(flows, clock.Real(), m, log, d.noteCleaned)}
		w.repeat(t)
	})
}

func (w *flowWorld) repeat(t *rapid.T) {
	name := func(t *rapid.T) ruleset.Name {
		return ruleset.Name(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"))
	}
	addr := rapid.SampledFrom(slices.Concat(flowVIPs, flowExternals, flowPods,
		[]netip.Addr{flowElsewhere, netip.MustParseAddr("127.0.0.1")}))
	t.Repeat(map[string]func(*rapid.T){
		"set": func(t *rapid.T) {
			n, p := name(t), drawPort(t)
			w.ports[n] = p
			w.table.Set(n, p)
		},
		"serving": func(t *rapid.T) {
			n := name(t)
			if w.ports[n] == nil {
				t.Skip()
			}
			p, other := *w.ports[n], drawPort(t)
			p.Cluster, p.Serving, p.Anywhere = other.Cluster, other.Serving, other.Anywhere
			w.ports[n] = &p
			w.table.Set(n, &p)
		},
		"remove": func(t *rapid.T) {
			n := name(t)
			delete(w.ports, n)
			w.table.Set(n, nil)
		},
		"clean": w.clean,
		"send": func(t *rapid.T) { // opens a flow that follows the rules in the kernel
			w.clean(t)
			to := netip.AddrPortFrom(addr.Draw(t, "to"), rapid.SampledFrom(flowPorts).Draw(t, "port"))
			p := w.at(to)
			switch {
			case p == nil:
				w.open(t, flowModel{to: to, from: to})
			case p.Serving.Len() > 0:
				from := rapid.SampledFrom(slices.Collect(p.Serving.All())).Draw(t, "endpoint")
				w.open(t, flowModel{to: to, from: from, ours: true})
			}
		},
		"hostPort": func(t *rapid.T) {
			w.open(t, flowModel{to: netip.AddrPortFrom(flowNode, 8053), from: netip.AddrPortFrom(flowPods[0], 53)})
		},
		"restart": func(t *rapid.T) { w.restart() },
		"killBeforeCleaning": func(t *rapid.T) {
			w.commit(w.table.Take())
			w.restart()
		},
	})
	w.clean(t)
}
