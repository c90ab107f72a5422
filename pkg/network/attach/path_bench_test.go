// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/network/ports"
	"keelson.dev/keelson/pkg/nft"
)

// within runs f in the sandbox's namespace, on an OS thread that ends with f.
func (r *testSandbox) within(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		done <- errors.Join(enter(r.rt.NetNS), f())
	}()
	return <-done
}

// BenchmarkPath measures the CPU time that the check of source addresses (package ports) adds to
// packets between two sandboxes: a small datagram and its answer, and 1 MiB over TCP. It alternates
// between measurements with and without the check.
func BenchmarkPath(b *testing.B) {
	for name, measure := range map[string]func(*testing.B, *testSandbox, *testSandbox) func() error{
		"datagram": datagrams, "stream": streams} {
		b.Run(name, func(b *testing.B) {
			n := newNetwork(b, `"10.9.0.0/24"`)
			track(b)
			one, two := n.attachSandbox("one", 2), n.attachSandbox("two", 3)
			step := measure(b, one, two)
			conf := Config{Name: "net", Bridge: "br0", DataDir: n.dir,
				Subnets: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}}
			table, err := ports.Open(0)
			must(b, err)
			defer table.Close()
			var free, bound []float64
			spent := func() time.Duration {
				var u unix.Rusage
				must(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
				return time.Duration(u.Utime.Nano() + u.Stime.Nano())
			}
			run := func(into *[]float64) {
				runtime.GC() // collect the garbage before the next measurement
				for range 100 {
					must(b, step())
				}
				const times = 1000
				begun := spent()
				for range times {
					must(b, step())
				}
				*into = append(*into, float64(spent()-begun)/times)
			}
			for b.Loop() {
				must(b, table.Remove())
				run(&free)
				_, err := Restore(conf)
				must(b, err)
				run(&bound)
			}
			slices.Sort(free)
			slices.Sort(bound)
			b.ReportMetric(free[len(free)/2], "free-cpu-ns")
			b.ReportMetric(bound[len(bound)/2], "bound-cpu-ns")
		})
	}
}

// track enables connection tracking of forwarded packets, which Services and network policies need
// on any node.
func track(b *testing.B) {
	conn, err := nft.Open(0)
	must(b, err)
	defer conn.Close()
	t := conn.AddTable(&nftables.Table{Name: "track", Family: nftables.TableFamilyIPv4})
	filter := conn.AddChain(&nftables.Chain{Name: "forward", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter})
	conn.AddRule(&nftables.Rule{Table: t, Chain: filter,
		Exprs: append(nft.NewConnection(), &expr.Verdict{Kind: expr.VerdictAccept})})
	nat := conn.AddChain(&nftables.Chain{Name: "nat", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	conn.AddRule(&nftables.Rule{Table: t, Chain: nat, Exprs: append(nft.ClearMark(1<<14), &expr.Masq{})})
	must(b, conn.Commit(nil))
	b.Cleanup(func() {
		conn, err := nft.Open(0)
		must(b, err)
		conn.Drop(t)
		must(b, errors.Join(conn.Commit(nil), conn.Close()))
	})
}

// datagrams returns a function that sends a small datagram and waits for the answer.
func datagrams(b *testing.B, one, two *testSandbox) func() error {
	var server, client *net.UDPConn
	must(b, two.within(func() (err error) {
		server, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(two.v4, 7)))
		return err
	}))
	must(b, one.within(func() (err error) {
		client, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(two.v4, 7)))
		return err
	}))
	b.Cleanup(func() { client.Close(); server.Close() })
	go func() {
		buf := make([]byte, 64)
		for {
			n, from, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	buf := make([]byte, 64)
	return func() error {
		if _, err := client.Write(buf); err != nil {
			return err
		}
		_, err := client.Read(buf)
		return err
	}
}

// streams returns a function that writes 1 MiB over TCP and waits until the receiver has read it.
func streams(b *testing.B, one, two *testSandbox) func() error {
	const size = 1 << 20
	var listener net.Listener
	var client net.Conn
	must(b, two.within(func() (err error) {
		listener, err = net.Listen("tcp4", netip.AddrPortFrom(two.v4, 7).String())
		return err
	}))
	must(b, one.within(func() (err error) {
		client, err = net.Dial("tcp4", netip.AddrPortFrom(two.v4, 7).String())
		return err
	}))
	server, err := listener.Accept()
	must(b, err)
	b.Cleanup(func() { client.Close(); server.Close(); listener.Close() })
	go func() {
		in := make([]byte, size)
		for {
			if _, err := io.ReadFull(server, in); err != nil {
				return
			}
			if _, err := server.Write(in[:1]); err != nil {
				return
			}
		}
	}()
	out := make([]byte, size)
	return func() error {
		if _, err := client.Write(out); err != nil {
			return err
		}
		_, err := io.ReadFull(client, out[:1])
		return err
	}
}
