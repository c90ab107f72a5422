// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/leaktest"
	"keelson.dev/keelson/pkg/proxy/command"
	"keelson.dev/keelson/test/unshare"
)

const asProxy = "KEELSON_TEST_PROXY_PROCESS"

// TestMain runs the tests in a new network namespace, which is the node. If the environment
// variable asProxy is set, the test binary runs the proxy instead, as a process that tests can
// kill.
func TestMain(m *testing.M) {
	if os.Getenv(asProxy) != "" {
		if err := command.Run(context.Background(), os.Args[1:], os.Stderr); err != nil {
			panic(err)
		}
		return
	}
	unshare.Run(leaktest.Checked{M: m}, unshare.Network)
}

// space is an unnamed network namespace. It ends with the test.
type space struct {
	t  testing.TB
	ns netns.NsHandle
	h  *netlink.Handle
}

// own returns the namespace in which the tests run.
func own(t testing.TB) *space {
	t.Helper()
	unshare.Need(t)
	s := &space{t: t}
	var err error
	s.ns, err = netns.Get()
	s.must(err)
	s.h, err = netlink.NewHandleAt(s.ns)
	s.must(err)
	t.Cleanup(func() { s.h.Close(); s.ns.Close() })
	return s
}

// in runs f in the namespace, on an OS thread for it alone. Sockets that f opens remain in the
// namespace after f has returned.
func (s *space) in(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		err := netns.Set(s.ns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func newSpace(t testing.TB) *space {
	t.Helper()
	unshare.Need(t)
	s := &space{t: t}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		s.ns, err = netns.New()
		done <- err
	}()
	s.must(<-done)
	var err error
	s.h, err = netlink.NewHandleAt(s.ns)
	s.must(err)
	t.Cleanup(func() { s.h.Close(); s.ns.Close() })
	s.up("lo")
	return s
}

func (s *space) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *space) up(link string) {
	s.t.Helper()
	l, err := s.h.LinkByName(link)
	s.must(err)
	s.must(s.h.LinkSetUp(l))
}

func (s *space) address(link string, addrs ...string) {
	s.t.Helper()
	l, err := s.h.LinkByName(link)
	s.must(err)
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		s.must(err)
		addr.Flags = unix.IFA_F_NODAD
		s.must(s.h.AddrAdd(l, addr))
	}
	s.up(link)
}

func (s *space) routes(via ...string) {
	s.t.Helper()
	for _, v := range via {
		s.must(s.h.RouteAdd(&netlink.Route{Gw: net.ParseIP(v)}))
	}
}

// node is a namespace with a bridge for pods, and a link to a client outside of the cluster.
type node struct {
	*space
	outside *space
	pods    int
}

func newNode(t testing.TB, s *space) *node {
	t.Helper()
	n := &node{space: s}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "pods"
	n.must(n.h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	n.address("pods", "10.244.1.1/24", "fd44:1::1/64")
	n.outside = newSpace(t)
	n.cable(n.outside, "uplink", "eth0")
	n.address("uplink", "192.0.2.1/24", "2001:db8::1/64")
	n.outside.address("eth0", "192.0.2.2/24", "2001:db8::2/64")
	n.outside.routes("192.0.2.1", "2001:db8::1")
	n.routes("192.0.2.2", "2001:db8::2")
	n.must(n.in(func() error {
		for _, f := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding",
			"bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables"} {
			// The path refers to the settings of the calling thread's namespace.
			if err := os.WriteFile("/proc/sys/net/"+f, []byte("1"), 0o644); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
		return nil
	}))
	return n
}

func (s *space) cable(to *space, name, peer string) {
	s.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	s.must(s.h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peer, PeerNamespace: netlink.NsFd(to.ns)}))
}

// pod is a namespace on the node's bridge. It runs servers that answer with the pod's name.
type pod struct {
	*space
	name   string
	v4, v6 netip.Addr
	ends   []io.Closer
}

func (n *node) pod() *pod {
	n.t.Helper()
	n.pods++
	p := &pod{space: newSpace(n.t), name: fmt.Sprintf("pod-%d", n.pods)}
	p.v4, p.v6 = netip.MustParseAddr(fmt.Sprintf("10.244.1.%d", 10+n.pods)),
		netip.MustParseAddr(fmt.Sprintf("fd44:1::%d", 10+n.pods))
	link := fmt.Sprintf("veth%d", n.pods)
	n.cable(p.space, link, "eth0")
	l, err := n.h.LinkByName(link)
	n.must(err)
	bridge, err := n.h.LinkByName("pods")
	n.must(err)
	n.must(n.h.LinkSetMaster(l, bridge.(*netlink.Bridge)))
	n.must(n.h.LinkSetHairpin(l, true))
	n.up(link)
	p.address("eth0", p.v4.String()+"/24", p.v6.String()+"/64")
	p.routes("10.244.1.1", "fd44:1::1")
	p.serve()
	return p
}

const targetPort = 8080

// serve starts the pod's servers. The TCP server answers each line with the pod's name and the
// client's address. The UDP server answers with the pod's name.
func (p *pod) serve() {
	p.t.Helper()
	p.must(p.in(func() error {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", targetPort))
		if err != nil {
			return err
		}
		u, err := net.ListenPacket("udp", fmt.Sprintf(":%d", targetPort))
		if err != nil {
			return err
		}
		p.ends = append(p.ends, l, u)
		go p.tcp(l)
		go p.udp(u)
		return nil
	}))
	p.t.Cleanup(p.stop)
}

func (p *pod) stop() {
	for _, c := range p.ends {
		_ = c.Close()
	}
	p.ends = nil
}

func (p *pod) tcp(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			lines := bufio.NewScanner(c)
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			for lines.Scan() {
				if _, err := fmt.Fprintf(c, "%s %s\n", p.name, host); err != nil {
					return
				}
			}
		}()
	}
}

func (p *pod) udp(u net.PacketConn) {
	buf := make([]byte, 100)
	for {
		_, from, err := u.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = u.WriteTo([]byte(p.name), from)
	}
}

// answer is the answer of a pod's server: the pod's name, and the client's address as the server
// sees it.
type answer struct{ pod, client string }

// dial connects from the namespace. limit is the maximum duration of the attempt. Tests that expect
// packets to be dropped use a short limit.
func (s *space) dial(network, to string, limit time.Duration) (net.Conn, error) {
	var c net.Conn
	err := s.in(func() error {
		var err error
		c, err = net.DialTimeout(network, to, limit)
		return err
	})
	return c, err
}

func ask(c net.Conn) (answer, error) {
	var a answer
	_ = c.SetDeadline(clock.Real().Now().Add(patience))
	if _, err := io.WriteString(c, "?\n"); err != nil {
		return a, err
	}
	buf := make([]byte, 200)
	n, err := c.Read(buf)
	if err != nil {
		return a, err
	}
	_, err = fmt.Sscan(string(buf[:n]), &a.pod, &a.client)
	if errors.Is(err, io.ErrUnexpectedEOF) && a.pod != "" {
		err = nil // an answer by UDP contains only the pod's name
	}
	return a, err
}

// get opens a TCP connection, sends one request and returns the answer.
func (s *space) get(to string) (answer, error) {
	c, err := s.dial("tcp", to, patience)
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	// Closing then resets the connection, so that a test with many connections does not run out of
	// ports.
	_ = c.(*net.TCPConn).SetLinger(0)
	return ask(c)
}

// spread sends n requests, each over a new connection, and returns how many answers each pod gave.
func (s *space) spread(to string, n int) map[string]int {
	s.t.Helper()
	out := map[string]int{}
	for range n {
		a, err := s.get(to)
		if err != nil {
			s.t.Fatalf("%s: %v", to, err)
		}
		out[a.pod]++
	}
	return out
}
