// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"keelson.dev/keelson/pkg/nft"
	"keelson.dev/keelson/pkg/proxy/kernel"
	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// load sends requests through a service until it is stopped. Each request uses a new connection.
type load struct {
	stopped      atomic.Bool
	asked, wrong atomic.Int64
	turns        []atomic.Int64 // number of completed requests of each client
	first        atomic.Value
	running      sync.WaitGroup
}

func (s *space) load(to string, clients int) *load {
	l := &load{turns: make([]atomic.Int64, clients)}
	for i := range clients {
		l.running.Go(func() {
			for !l.stopped.Load() {
				_, err := s.get(to)
				l.asked.Add(1)
				l.turns[i].Add(1)
				if err != nil {
					l.wrong.Add(1)
					l.first.CompareAndSwap(nil, fmt.Sprint(err))
				}
			}
		})
	}
	return l
}

// until waits until a number of further requests have completed.
func (l *load) until(c *cluster, more int64) {
	c.t.Helper()
	goal := l.asked.Load() + more
	c.eventually("requests", func() bool { return l.asked.Load() >= goal })
}

// settled waits until every request that is in progress now has completed.
func (l *load) settled(c *cluster) {
	c.t.Helper()
	for i := range l.turns {
		now := l.turns[i].Load()
		c.eventually("a client's turn", func() bool { return l.turns[i].Load() > now })
	}
}

func (l *load) stop(t *testing.T) {
	t.Helper()
	l.stopped.Store(true)
	l.running.Wait()
	if n := l.wrong.Load(); n > 0 {
		t.Errorf("%d of %d requests failed, the first with %v", n, l.asked.Load(), l.first.Load())
	}
	t.Logf("%d requests", l.asked.Load())
}

// TestRollingUpdate replaces all endpoints one by one, as a rolling update does: the new endpoint
// becomes ready, the old one terminates but still serves, and finally the old one is removed. No
// request may fail.
func TestRollingUpdate(t *testing.T) {
	c := newCluster(t, nil)
	client := c.pod()
	now := []endpoint{on("n1", c.pod()), on("n1", c.pod()), on("n1", c.pod())}
	s := c.svc("roll", corev1.ProtocolTCP, nil, now...)
	c.reachable(client.space, vip(s))
	long, err := client.dial("tcp", vip(s), patience)
	c.must(err)
	defer long.Close()
	first, err := ask(long)
	c.must(err)

	l := client.load(vip(s), 2)
	for i := range now {
		fresh := on("n1", c.pod())
		c.endpoints("roll", corev1.ProtocolTCP, append(now, fresh)...)
		old := now[i]
		now[i].terminating = true
		c.endpoints("roll", corev1.ProtocolTCP, append(now, fresh)...)
		l.until(c, 50)
		now[i] = fresh
		c.endpoints("roll", corev1.ProtocolTCP, now...)
		c.proxied()
		if old.name == first.pod { // checked below: an open connection lasts until its pod ends
			if a, err := ask(long); err != nil || a.pod != old.name {
				t.Errorf("established connection: %v, %v", a, err)
			}
		}
		l.settled(c) // wait until no request to the old pod is in progress
		old.stop()
		l.until(c, 50)
	}
	l.stop(t)
	if got := client.spread(vip(s), 60); len(got) != 3 || got[now[0].name] == 0 {
		t.Errorf("after the update: %v", got)
	}
}

// kubeconfig writes a kubeconfig file with the credentials of the proxy's user, and returns its
// path.
func (c *cluster) kubeconfig() string {
	c.t.Helper()
	user := c.server.UserConfig(c.t, "system:kube-proxy")
	out := clientcmdapi.NewConfig()
	ca := user.CAData
	if len(ca) == 0 {
		var err error
		ca, err = os.ReadFile(user.CAFile)
		c.must(err)
	}
	out.Clusters["c"] = &clientcmdapi.Cluster{Server: user.Host, CertificateAuthorityData: ca}
	out.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: user.CertData,
		ClientKeyData: user.KeyData, ClientCertificate: user.CertFile, ClientKey: user.KeyFile}
	out.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	out.CurrentContext = "x"
	path := filepath.Join(c.t.TempDir(), "kubeconfig")
	c.must(clientcmd.WriteToFile(*out, path))
	return path
}

// ownNode returns a node in the namespace in which the tests run, so that a proxy process can run
// there. At the end of the test, everything in it is removed.
func ownNode(t *testing.T) *node {
	n := newNode(t, own(t))
	t.Cleanup(func() {
		links, err := n.h.LinkList()
		n.must(err)
		for _, l := range links {
			if l.Attrs().Name == "lo" {
				continue
			}
			// The link may have been removed together with the namespace of its other end.
			if err := n.h.LinkDel(l); !errors.Is(err, unix.ENODEV) {
				n.must(err)
			}
		}
		for _, f := range []ruleset.Family{ruleset.IPv4, ruleset.IPv6} {
			k, err := kernel.Open(kernel.Config{Family: f})
			n.must(err)
			n.must(errors.Join(k.Remove(), k.Close()))
		}
	})
	return n
}

// proxyCommand returns the command that runs the proxy as a process.
func proxyCommand(kubeconfig string, logs io.Writer) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "--kubeconfig="+kubeconfig, "--hostname-override=n1",
		"--cluster-cidr=10.244.0.0/16",
		"--healthz-bind-address=127.0.0.1:18080", "--metrics-bind-address=127.0.0.1:18081")
	cmd.Env = append(os.Environ(), asProxy+"=1")
	cmd.Stdout, cmd.Stderr = logs, logs
	return cmd
}

// TestKill kills the proxy's process while requests are in progress, changes the service while no
// proxy runs, and starts the proxy again.
func TestKill(t *testing.T) {
	c := &cluster{node: ownNode(t)}
	c.serve()
	pod := c.pod()
	a, b := on("n1", c.pod()), on("n1", c.pod())
	s := c.svc("kill", corev1.ProtocolTCP, nil, a, b)
	kubeconfig := c.kubeconfig()
	var logs bytes.Buffer
	defer func() {
		if t.Failed() {
			t.Log(logs.String())
		}
	}()
	start := func() *exec.Cmd {
		cmd := proxyCommand(kubeconfig, &logs)
		c.must(cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // fails if the process has already ended
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		c.must(cmd.Process.Kill())
		_ = cmd.Wait() // returns an error, because the process was killed
	}
	running := start()
	c.reachable(pod.space, vip(s))
	l := pod.load(vip(s), 2)
	for range 3 {
		l.until(c, 50)
		kill(running)
		l.until(c, 50)
		running = start()
	}
	kill(running)
	d := on("n1", c.pod())
	c.endpoints("kill", corev1.ProtocolTCP, a, d)
	running = start()
	c.eventually("the new endpoint", func() bool { return pod.spread(vip(s), 1)[d.name] == 1 })
	l.stop(t)
	if got := pod.spread(vip(s), 60); got[b.name] != 0 || len(got) != 2 {
		t.Errorf("after the restart: %v", got)
	}
	kill(running)
	if n := strings.Count(logs.String(), "Nftables table created"); n > 2 {
		t.Errorf("tables made %d times; want once each, and then adopted:\n%s", n, logs.String())
	}
}

// TestTableRemoved checks that the proxy writes its table again after another program has flushed
// the ruleset, and that it does not touch the tables of other programs.
func TestTableRemoved(t *testing.T) {
	c := newCluster(t, nil)
	a, client := c.pod(), c.pod()
	s := c.svc("gone", corev1.ProtocolTCP, nil, on("n1", a))
	c.reachable(client.space, vip(s))
	k, err := kernel.Open(kernel.Config{Family: ruleset.IPv4, NetNS: int(c.ns)})
	c.must(err)
	defer k.Close()
	conn, err := nft.Open(int(c.ns))
	c.must(err)
	defer conn.Close()
	conn.AddTable(&nftables.Table{Name: "foreign", Family: nftables.TableFamilyIPv4})
	c.must(conn.Commit(nil))
	c.must(k.Remove())
	c.svc("other", corev1.ProtocolTCP, nil, on("n1", a)) // the kernel rejects this change, because the table is missing
	c.reachable(client.space, vip(s))
	tables, err := conn.ListTables()
	c.must(err)
	if !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == "foreign" }) {
		t.Error("the table of another program was removed")
	}
}
