// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/proxy/ruleset"
	"keelson.dev/keelson/test/unshare"
)

func TestMain(m *testing.M) { unshare.Run(m, unshare.Network) }

func open(tb testing.TB, f ruleset.Family, s Settings) *Table {
	tb.Helper()
	unshare.Need(tb)
	k, err := Open(Config{Family: f, Settings: s, Interface: "pods"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(k.Remove(), k.Close()); err != nil {
			tb.Error(err)
		}
	})
	return k
}

// number returns the nth address of a prefix.
func number(prefix string, n int) netip.Addr {
	b := netip.MustParseAddr(prefix).AsSlice()
	at := b[len(b)-4:]
	binary.BigEndian.PutUint32(at, binary.BigEndian.Uint32(at)+uint32(n))
	a, _ := netip.AddrFromSlice(b)
	return a
}

// port returns the ith of many services, with n endpoints.
func port(f ruleset.Family, i, n int) *ruleset.Port {
	vips, pods := "10.96.0.0", "10.244.0.0"
	if f == ruleset.IPv6 {
		vips, pods = "fd96::", "fd44::"
	}
	p := &ruleset.Port{VIP: ruleset.Frontend{Addr: number(vips, i+1), Protocol: ruleset.TCP, Port: 80}, Anywhere: n > 0}
	var list []netip.AddrPort
	for e := range n {
		list = append(list, netip.AddrPortFrom(number(pods, i*50+e), 8080))
	}
	p.Cluster = ruleset.Pack(list)
	return p
}

// everything returns a service that uses all features.
func everything(f ruleset.Family) *ruleset.Port {
	p := port(f, 70000, 3)
	external, sources := []netip.Addr{netip.MustParseAddr("198.51.100.1")},
		[]netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("192.0.2.1/32")}
	if f == ruleset.IPv6 {
		external, sources = []netip.Addr{netip.MustParseAddr("2001:db8::1")},
			[]netip.Prefix{netip.MustParsePrefix("2001:db8:1::/48")}
	}
	p.External, p.Guarded, p.Sources = external, external, sources
	p.NodePort, p.Sticky, p.ExternalLocal = 30080, 60, true
	first := slices.Collect(p.Cluster.All())[:1]
	p.Local, p.OnNode = ruleset.Pack(first), []netip.Addr{first[0].Addr()}
	return p
}

var ranges = &Ranges{
	Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("10.245.0.0/16"),
		netip.MustParsePrefix("fd44::/16")},
	Services:  []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd96::/112")},
	NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
}

// check reads the table from the kernel and compares it with want.
func check(t *testing.T, k *Table, want *ruleset.Table) {
	t.Helper()
	found, ok, err := k.Read()
	if err != nil || !ok {
		t.Fatalf("read: %v, %v", ok, err)
	}
	if d := want.Diff(found); d.Len() != 0 {
		t.Fatalf("the kernel differs: delete %v, add %v", d.Delete, d.Add)
	}
}

func TestTable(t *testing.T) {
	for _, f := range []ruleset.Family{ruleset.IPv4, ruleset.IPv6} {
		for name, s := range map[string]Settings{
			"Ranges":        {MasqueradeBit: 14, Pods: ByRange},
			"MasqueradeAll": {MasqueradeBit: 31, MasqueradeAll: true, NodePortsOn: true},
			"Interface":     {Pods: ByInterface},
			"Prefix":        {Pods: ByPrefix, NodePortsOn: true},
		} {
			t.Run(f.String()+name, func(t *testing.T) { testTable(t, f, s) })
		}
	}
}

func testTable(t *testing.T, f ruleset.Family, s Settings) {
	k := open(t, f, s)
	if _, ok, err := k.Read(); ok || err != nil {
		t.Fatalf("there is a table: %v, %v", ok, err)
	}
	table := ruleset.NewTable(f)
	for i := range 10 {
		table.Set(ruleset.Name(fmt.Sprint(i)), port(f, i, i))
	}
	table.Set("all", everything(f))
	if err := k.Replace(table.Take().Add, ranges); err != nil {
		t.Fatal(err)
	}
	check(t, k, table)
	listable(t, f)

	for i := range 10 {
		table.Set(ruleset.Name(fmt.Sprint(i)), port(f, i, (i+7)%12))
	}
	table.Set("all", nil)
	if err := k.Apply(table.Take(), ranges); err != nil {
		t.Fatal(err)
	}
	check(t, k, table)
	if n, err := k.Prune(table.Uses); err != nil || n == 0 {
		t.Errorf("pruned %d, %v", n, err)
	}
	table.Set("all", everything(f)) // the chains of these classes were pruned before
	if err := k.Apply(table.Take(), nil); err != nil {
		t.Fatal(err)
	}
	check(t, k, table)

	// If the kernel rejects a transaction, the table does not change.
	bad := ruleset.Changes{
		Add:    []ruleset.Element{{Set: ruleset.ClusterIPs, Key: string(number("10.0.0.0", 1).AsSlice())}},
		Delete: []ruleset.Element{{Set: ruleset.Guarded, Key: strings.Repeat("x", f.Size()+8)}},
	}
	if f == ruleset.IPv6 {
		bad.Add[0].Key = string(number("fd00::", 1).AsSlice())
	}
	if err := k.Apply(bad, nil); !errors.Is(err, unix.ENOENT) {
		t.Errorf("deleting what is not there: %v", err)
	}
	check(t, k, table)

	// A table that was created with other settings has another layout.
	s.MasqueradeBit ^= 1
	other, err := Open(Config{Family: f, Settings: s, Interface: "pods"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, ok, err := other.Read(); ok || err != nil {
		t.Errorf("another layout is adopted: %v, %v", ok, err)
	}
	if there, err := other.Present(); !there || err != nil {
		t.Errorf("present: %v, %v", there, err)
	}
}

// listable checks that nft can print the table. nft aborts on rules that it does not understand.
func listable(t *testing.T, f ruleset.Family) {
	t.Helper()
	nft, err := exec.LookPath("nft")
	if err != nil {
		return
	}
	family := map[ruleset.Family]string{ruleset.IPv4: "ip", ruleset.IPv6: "ip6"}[f]
	out, err := exec.Command(nft, "list", "table", family, tableName).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "map @endpoints") {
		t.Errorf("nft list: %v\n%s", err, out)
	}
}

// BenchmarkChange changes one endpoint of one of many services with ten endpoints each. It compares
// a transaction by netlink with a run of the program nft.
func BenchmarkChange(b *testing.B) {
	for _, services := range []int{100, 1000, 5000, 20000} {
		k := open(b, ruleset.IPv4, Settings{MasqueradeBit: 14, Pods: ByRange})
		table := ruleset.NewTable(ruleset.IPv4)
		for i := range services {
			table.Set(ruleset.Name(fmt.Sprint(i)), port(ruleset.IPv4, i, 10))
		}
		if err := k.Replace(table.Take().Add, ranges); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("netlink/services=%d", services), func(b *testing.B) {
			elements := 0
			cpu := cpuTime(unix.RUSAGE_SELF)
			for i := 0; b.Loop(); i++ {
				table.Set("7", port(ruleset.IPv4, 7, 10+(i+1)%2))
				changes := table.Take()
				elements += changes.Len()
				if err := k.Apply(changes, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(elements)/float64(b.N), "elements/op")
			b.ReportMetric(float64(cpuTime(unix.RUSAGE_SELF)-cpu)/float64(b.N), "cpu-ns/op")
		})
		b.Run(fmt.Sprintf("nft/services=%d", services), func(b *testing.B) {
			nft, err := exec.LookPath("nft")
			if err != nil {
				b.Skip(err)
			}
			cpu := cpuTime(unix.RUSAGE_CHILDREN)
			for i := 0; b.Loop(); i++ {
				cmd := exec.Command(nft, "-f", "-")
				verb := [...]string{"add", "delete"}[i%2]
				cmd.Stdin = strings.NewReader(verb + " element ip " + tableName + " cluster-ips { 10.200.0.1 }\n" +
					verb + " element ip " + tableName + " hairpins { 10.200.0.1 . 10.200.0.1 }\n" +
					verb + " element ip " + tableName + " guarded { 10.200.0.1 . tcp . 80 }\n")
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
			}
			b.ReportMetric(3, "elements/op")
			b.ReportMetric(float64(cpuTime(unix.RUSAGE_CHILDREN)-cpu)/float64(b.N), "cpu-ns/op")
		})
		if err := k.Remove(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAdopt reads the table of many services with ten endpoints each, and compares it with the
// wanted table.
func BenchmarkAdopt(b *testing.B) {
	for _, services := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			k := open(b, ruleset.IPv4, Settings{MasqueradeBit: 14, Pods: ByRange})
			table := ruleset.NewTable(ruleset.IPv4)
			for i := range services {
				table.Set(ruleset.Name(fmt.Sprint(i)), port(ruleset.IPv4, i, 10))
			}
			if err := k.Replace(table.Take().Add, ranges); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				found, ok, err := k.Read()
				if err != nil || !ok {
					b.Fatal(ok, err)
				}
				if d := table.Diff(found); d.Len() != 0 {
					b.Fatal("the kernel differs")
				}
			}
		})
	}
}

// cpuTime returns the CPU time of the process, or of its child processes, in nanoseconds. who is an
// argument of getrusage.
func cpuTime(who int) int64 {
	runtime.Gosched()
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
