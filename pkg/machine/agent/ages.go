// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"

	"keelson.dev/keelson/pkg/balancer"
)

// ages makes a balancer prefer API servers that are not older than this machine's release. While a cluster is
// upgraded to another minor version of Kubernetes, the kubelet and the other programs of this machine must not
// be newer than the API server that they use.
//
// The agent asks a server for its version once, and again after a connection to it has ended: the server may
// have been restarted with another release. Until then its age is unknown.
type ages struct {
	own      *version.Version // of this machine's release; nil if all servers are equal
	balancer *balancer.Balancer
	// again receives a value when a connection has ended.
	again chan struct{}

	mu    sync.Mutex
	known map[string]balancer.Age // by server
	ended map[string]int          // how many connections to a server have ended
}

func newAges(own *version.Version, b *balancer.Balancer) *ages {
	return &ages{own: own, balancer: b, again: make(chan struct{}, 1), known: map[string]balancer.Age{},
		ended: map[string]int{}}
}

// dial connects to a server, and forgets its version when the connection ends. The client that uses it keeps
// one connection to each server open.
func (a *ages) dial(ctx context.Context, network, server string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	return &watchedConn{conn, sync.OnceFunc(func() { a.forget(server) })}, nil
}

// watchedConn is a connection that calls a function when it ends.
type watchedConn struct {
	net.Conn
	ended func()
}

// Read implements net.Conn.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.ended()
	}
	return n, err
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	c.ended()
	return c.Conn.Close()
}

// forget makes the age of a server unknown.
func (a *ages) forget(server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended[server]++
	delete(a.known, server)
	a.balancer.SetAge(server, balancer.AgeUnknown)
	select {
	case a.again <- struct{}{}:
	default: // it has a value already
	}
}

// learn asks a server for its version, unless it is known.
func (a *ages) learn(ctx context.Context, client *http.Client, server string) {
	a.mu.Lock()
	_, known := a.known[server]
	before := a.ended[server]
	a.mu.Unlock()
	if known || a.own == nil {
		return
	}
	v, err := serverVersion(ctx, client, server)
	if err != nil {
		return // the next check asks again
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ended[server] != before: // the answer may be that of an earlier process
	case v.Minor() < a.own.Minor():
		a.known[server] = balancer.Older
	default:
		a.known[server] = balancer.NotOlder
	}
}

// apply passes what is known to the balancer. answers says which of the servers have just answered.
func (a *ages) apply(servers []string, answers func(i int) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	works := false
	for i, s := range servers {
		age, ok := a.known[s]
		if !ok {
			age = balancer.AgeUnknown
		}
		a.balancer.SetAge(s, age)
		works = works || age == balancer.NotOlder && answers(i)
	}
	if works {
		a.balancer.LeaveOlder()
	}
}

// serverVersion returns the version of Kubernetes of an API server.
func serverVersion(ctx context.Context, client *http.Client, server string) (*version.Version, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+server+"/version", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var info apiversion.Info
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&info); err != nil {
		return nil, fmt.Errorf("%s: %w", req.URL, err)
	}
	return version.ParseSemantic(info.GitVersion)
}
