// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/nft"
	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// contents returns the kernel's table as text: the number of elements of each set, and which of the
// pods are endpoints. It leaves out the slots of endpoints, because they are not deterministic.
func (c *cluster) contents(pods ...endpoint) string {
	c.t.Helper()
	conn, err := nft.Open(int(c.ns))
	c.must(err)
	defer conn.Close()
	sets, err := conn.GetSets(&nftables.Table{Name: "keelson-proxy", Family: nftables.TableFamilyIPv4})
	if errors.Is(err, unix.ENOENT) {
		return "none"
	}
	c.must(err)
	var out []string
	for _, set := range sets {
		elements, err := conn.GetSetElements(set)
		c.must(err)
		out = append(out, fmt.Sprintf("%s %d", set.Name, len(elements)))
		if set.Name != ruleset.EndpointSlots.String() {
			continue
		}
		for _, p := range pods {
			if slices.ContainsFunc(elements, func(e nftables.SetElement) bool { return bytes.Contains(e.Val, p.v4.AsSlice()) }) {
				out = append(out, p.name)
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// TestCut starts the proxy when changes are due, and kills it at each of its transactions: once
// before the kernel gets the transaction, and once after the kernel has applied it. The service
// must work all the time, the kernel must have either the old or the new table, and the next start
// must complete the changes.
func TestCut(t *testing.T) {
	c := &cluster{node: ownNode(t)}
	c.serve()
	client, a, b, d := c.pod(), on("n1", c.pod()), on("n1", c.pod()), on("n1", c.pod())
	s := c.svc("cut", corev1.ProtocolTCP, nil, a, b)
	kubeconfig := c.kubeconfig()
	var logs bytes.Buffer
	defer func() {
		if t.Failed() {
			t.Log(logs.String())
		}
	}()
	// whole runs the proxy until the first pod is an endpoint in the kernel's table and the second
	// pod is not. It returns the table.
	whole := func(with, without endpoint) string {
		cmd := proxyCommand(kubeconfig, &logs)
		c.must(cmd.Start())
		c.reachable(client.space, vip(s))
		c.eventually("the service's endpoints", func() bool {
			have := c.contents(a, b, d)
			return strings.Contains(have, with.name) && !strings.Contains(have, without.name)
		})
		c.must(cmd.Process.Kill())
		_ = cmd.Wait() // returns an error, because the process was killed
		return c.contents(a, b, d)
	}
	before := whole(b, d)
	c.endpoints("cut", corev1.ProtocolTCP, a, d)
	after := whole(d, b)
	if before == after {
		t.Fatal("nothing was changed")
	}

	l := client.load(vip(s), 2)
	for n := 1; ; n++ {
		for _, taken := range []bool{false, true} {
			c.endpoints("cut", corev1.ProtocolTCP, a, b)
			if got := whole(b, d); got != before {
				t.Fatalf("got %s, want %s", got, before)
			}
			c.endpoints("cut", corev1.ProtocolTCP, a, d)
			reached := c.cutAt(proxyCommand(kubeconfig, &logs), cut{n, taken},
				func() bool { return c.contents(a, b, d) == after })
			got := c.contents(a, b, d)
			switch {
			case !reached:
				l.stop(t)
				if n == 1 {
					t.Error("there was no transaction")
				}
				return
			case got != before && got != after:
				t.Errorf("cut %d, taken %v: got %s, want %s or %s", n, taken, got, before, after)
			case n == 1 && (got == after) != taken:
				t.Errorf("cut %d, taken %v: got %s", n, taken, got)
			}
			l.until(c, 20)
			if got := whole(d, b); got != after {
				t.Errorf("after cut %d, taken %v: got %s, want %s", n, taken, got, after)
			}
		}
	}
}

// cutAt runs a process until it is killed at the cut, or until the function everything returns
// true. It reports whether the process reached the cut.
func (c *cluster) cutAt(cmd *exec.Cmd, at cut, everything func() bool) bool {
	c.t.Helper()
	idle, ended := make(chan struct{}), make(chan struct{})
	var reached bool
	var err error
	go func() {
		reached, err = runUntil(cmd, at, idle)
		close(ended)
	}()
	c.eventually("a cut, or everything", func() bool {
		select {
		case <-ended:
			return true
		default:
			return everything()
		}
	})
	close(idle)
	<-ended
	c.must(err)
	return reached
}
