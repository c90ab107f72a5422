// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/cluster"
)

const kubeletPort = "10250"

var (
	errPort = errors.New("not a port with metrics")
	errDown = errors.New("the node does not run")
)

// ports returns the ports of the processes with metrics: scheduler, controller manager, kubelet and
// proxy. The HTTP proxy connects only to these ports.
func ports() []string { return []string{"10259", "10257", kubeletPort, "10249"} }

// proxy is an HTTP proxy that connects to addresses in a cluster's network namespaces. If the host
// of a request is the name of a node, the proxy connects to the loopback address of that node. All
// other hosts must be IP addresses; the proxy connects to them from the network namespace of the
// control plane. At /nodes, the proxy lists the kubelets in the format of Prometheus'
// http_sd_configs.
type proxy struct {
	inspect func(context.Context) (*cluster.Status, error)
	plain   *httputil.ReverseProxy
}

func newProxy(inspect func(context.Context) (*cluster.Status, error)) *proxy {
	p := &proxy{inspect: inspect}
	p.plain = &httputil.ReverseProxy{
		Rewrite:   func(*httputil.ProxyRequest) {}, // the request's URL already has the target host
		Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true},
		// Prometheus shows the error. The default handler would also log it, at each scrape of a
		// stopped node.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		p.connect(w, r)
	case r.URL.IsAbs():
		p.plain.ServeHTTP(w, r)
	case r.URL.Path == "/nodes":
		p.nodes(w, r)
	default:
		http.NotFound(w, r)
	}
}

// targets is an element of the list at /nodes, as Prometheus expects it.
type targets struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

func (p *proxy) nodes(w http.ResponseWriter, r *http.Request) {
	status, err := p.inspect(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	list := []targets{}
	for _, n := range status.Nodes {
		primary, _, _ := strings.Cut(n.Address, ",")
		list = append(list, targets{
			Targets: []string{net.JoinHostPort(primary, kubeletPort)}, Labels: map[string]string{"node": n.Name},
		})
	}
	data, err := json.Marshal(list)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // on an error, the client detects that the response is incomplete
}

func (p *proxy) connect(w http.ResponseWriter, r *http.Request) {
	target, err := p.dial(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer target.Close()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer client.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(target, buffered) // on an error, the other end of the connection detects it
		target.Close()
	})
	both.Go(func() {
		_, _ = io.Copy(client, target)
		client.Close()
	})
	both.Wait()
}

// dial connects to address from the network namespace that the function locate returns for it.
func (p *proxy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	status, err := p.inspect(ctx)
	if err != nil {
		return nil, err
	}
	pid, address, err := locate(status, address)
	if err != nil {
		return nil, err
	}
	return dialFrom(ctx, pid, network, address)
}

// locate returns the ID of a process in the network namespace from which to connect to address, and
// the address to connect to there.
func locate(status *cluster.Status, address string) (int, string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, "", err
	}
	if !slices.Contains(ports(), port) {
		return 0, "", fmt.Errorf("%s: %w", address, errPort)
	}
	if net.ParseIP(host) != nil {
		return status.Supervisor, address, nil
	}
	for _, n := range status.Nodes {
		if n.Name == host && n.Pid != 0 {
			return n.Pid, net.JoinHostPort("127.0.0.1", port), nil
		}
	}
	return 0, "", fmt.Errorf("%s: %w", host, errDown)
}

// dialFrom connects to an address from the network namespace of a process. It enters the namespace
// on a separate thread, because a socket belongs to the namespace of the thread that creates it.
func dialFrom(ctx context.Context, pid int, network, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		conn, err := func() (net.Conn, error) {
			ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
			if err != nil {
				return nil, err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return nil, fmt.Errorf("network namespace: %w", err)
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}()
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}
