// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/env"
)

const (
	probeAgent  = "kube-probe/1.37"
	hookAgent   = "kube-lifecycle/1.37"
	maxBody     = 10 << 10 // maximum size in bytes of the part of a response that is read
	maxRedirect = 10
)

// Target is the container that a probe checks or whose lifecycle handler runs.
type Target struct {
	Pod       *v1.Pod // set for a lifecycle handler, nil for a probe
	Container *v1.Container
	ID        string // ID of the running container
	IP        string // IP address of the pod
}

// Handler runs probes and lifecycle handlers. It is safe for concurrent use.
type Handler struct {
	// Exec runs a command in a container and returns its output and exit code. The error is
	// context.DeadlineExceeded if the command took too long.
	Exec  func(ctx context.Context, containerID string, command []string) (output string, exit int32, err error)
	Clock clock.Clock
	// FellBack is called when a lifecycle handler with the scheme HTTPS succeeded over plain HTTP,
	// because the server did not support TLS. It may be nil.
	FellBack func(t Target, host string)
}

// ErrSleepCut is returned when a sleep handler ends early because its context has ended.
var ErrSleepCut = errors.New("container terminated before sleep hook finished")

// Probe runs a probe once. If ok is false, message says why the probe failed. If ok is true,
// message is a warning to record, or "". An error means that the probe could not run, so it has no
// result.
func (h *Handler) Probe(ctx context.Context, t Target, p *v1.Probe) (ok bool, message string, err error) {
	switch {
	case p.Exec != nil:
		return h.exec(ctx, t, env.ExpandStatic(p.Exec.Command, t.Container.Env))
	case p.HTTPGet != nil:
		_, err = portOf(p.HTTPGet.Port, t.Container)
	case p.TCPSocket != nil:
		_, err = portOf(p.TCPSocket.Port, t.Container)
	}
	if err != nil {
		return false, "", err
	}
	ok, message = h.reach(ctx, t, p)
	return ok, message, nil
}

// reach runs a probe that uses the network: HTTP, TCP or gRPC.
func (h *Handler) reach(ctx context.Context, t Target, p *v1.Probe) (ok bool, message string) {
	switch {
	case p.HTTPGet != nil:
		status, body, err := get(ctx, t, p.HTTPGet)
		switch {
		case err != nil:
			return false, err.Error()
		case status < http.StatusOK || status >= http.StatusBadRequest:
			return false, fmt.Sprintf("HTTP probe failed with statuscode: %d", status)
		// A status of 3xx is a redirect to another host, which send does not follow.
		case status >= http.StatusMultipleChoices:
			return true, "Probe terminated redirects, Response body: " + body
		}
		return true, ""
	case p.TCPSocket != nil:
		return h.connect(ctx, t, p.TCPSocket)
	case p.GRPC != nil:
		return h.grpc(ctx, t, p.GRPC)
	}
	return false, "missing probe handler"
}

func (h *Handler) exec(ctx context.Context, t Target, command []string) (bool, string, error) {
	output, exit, err := h.Exec(ctx, t.ID, command)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return false, fmt.Sprintf("command timed out: %q timed out", strings.Join(command, " ")), nil
	case err != nil:
		return false, "", err
	}
	if exit == 0 {
		return true, "", nil
	}
	return false, output, nil
}

// get sends the request of an HTTP probe.
func get(ctx context.Context, t Target, g *v1.HTTPGetAction) (status int, body string, err error) {
	req, err := newRequest(ctx, t, g, probeAgent)
	if err != nil {
		return 0, "", err
	}
	resp, err := send(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return 0, "", err
	}
	return resp.StatusCode, string(b), nil
}

// newRequest creates the HTTP request of a probe or a lifecycle handler.
func newRequest(ctx context.Context, t Target, g *v1.HTTPGetAction, agent string) (*http.Request, error) {
	port, err := portOf(g.Port, t.Container)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(g.Path)
	if err != nil { // a path that is not a valid URL is used literally
		u = &url.URL{Path: g.Path}
	}
	u.Scheme = strings.ToLower(string(g.Scheme))
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	host := g.Host
	if host == "" {
		host = t.IP
	}
	u.Host = net.JoinHostPort(host, strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	setHeaders(req, g.HTTPHeaders, agent)
	return req, nil
}

// send sends a request, and follows redirects to the same host.
func send(req *http.Request) (*http.Response, error) {
	return (&http.Client{Transport: once{}, CheckRedirect: sameHost}).Do(req)
}

// sameHost allows redirects to the probed host. For a redirect to another host, the client returns
// the redirect itself as the response.
func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirect {
		return fmt.Errorf("stopped after %d redirects", maxRedirect)
	}
	return nil
}

func setHeaders(req *http.Request, headers []v1.HTTPHeader, agent string) {
	req.Header.Set("User-Agent", agent)
	req.Header.Set("Accept", "*/*")
	given := http.Header{}
	for _, h := range headers {
		given.Add(h.Name, h.Value)
	}
	for name, values := range given {
		req.Header[name] = values
		if len(values) == 1 && values[0] == "" && (name == "Accept" || name == "User-Agent") {
			req.Header[name] = nil // nil makes the client leave out a header that has a default value
		}
	}
	if host := given.Get("Host"); host != "" {
		req.Host = host
	}
}

func (h *Handler) connect(ctx context.Context, t Target, a *v1.TCPSocketAction) (bool, string) {
	port, err := portOf(a.Port, t.Container)
	if err != nil {
		return false, err.Error()
	}
	host := a.Host
	if host == "" {
		host = t.IP
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return false, err.Error()
	}
	_ = conn.Close()
	return true, ""
}

func (h *Handler) grpc(ctx context.Context, t Target, a *v1.GRPCAction) (bool, string) {
	address := net.JoinHostPort(t.IP, strconv.Itoa(int(a.Port)))
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(probeAgent), grpc.WithNoProxy())
	if err != nil {
		return false, err.Error()
	}
	defer func() { _ = conn.Close() }()
	service := ""
	if a.Service != nil {
		service = *a.Service
	}
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service},
		grpc.WaitForReady(false))
	switch code := grpcstatus.Code(err); {
	case code == codes.Unimplemented:
		return false, fmt.Sprintf(
			"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s",
			grpcstatus.Convert(err).Message())
	case code == codes.DeadlineExceeded:
		return false, fmt.Sprintf("timeout: health rpc did not complete within the timeout: %s",
			grpcstatus.Convert(err).Message())
	case err != nil:
		return false, fmt.Sprintf("error: health rpc probe failed: %s", err)
	case resp.GetStatus() != healthpb.HealthCheckResponse_SERVING:
		return false, fmt.Sprintf("service unhealthy (responded with %q)", resp.GetStatus())
	}
	return true, ""
}

// Lifecycle runs a postStart or preStop handler until it ends.
func (h *Handler) Lifecycle(ctx context.Context, t Target, l *v1.LifecycleHandler) error {
	switch {
	case l.Exec != nil:
		output, exit, err := h.Exec(ctx, t.ID, l.Exec.Command)
		if err != nil {
			return err
		}
		if exit != 0 {
			return fmt.Errorf("command '%s' exited with %d: %s", strings.Join(l.Exec.Command, " "), exit, output)
		}
	case l.HTTPGet != nil:
		return h.call(ctx, t, l.HTTPGet)
	case l.Sleep != nil:
		timer := h.Clock.NewTimer(time.Duration(l.Sleep.Seconds) * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-ctx.Done():
			return ErrSleepCut
		}
	default: // the API accepts tcpSocket handlers, but Kubernetes has never supported running them
		return errors.New("invalid handler")
	}
	return nil
}

// call sends the request of an HTTP lifecycle handler. Any response counts as success, whatever its
// status and body. If the server does not support TLS, call repeats the request without TLS:
// Kubernetes once ignored the scheme of handlers, and users rely on that.
func (h *Handler) call(ctx context.Context, t Target, g *v1.HTTPGetAction) error {
	if g.Host == "" && t.IP == "" {
		return errors.New("failed to find networking container")
	}
	req, err := newRequest(ctx, t, g, hookAgent)
	if err != nil {
		return err
	}
	resp, err := send(req)
	if err == nil {
		return resp.Body.Close()
	}
	if !errors.Is(err, http.ErrSchemeMismatch) {
		return err
	}
	again := req.Clone(ctx)
	again.URL.Scheme = "http"
	again.Header.Del("Authorization")
	resp, plain := send(again)
	if plain != nil {
		return err
	}
	if h.FellBack != nil {
		h.FellBack(t, req.URL.Host)
	}
	return resp.Body.Close()
}

// portOf returns the number of a port, which is given as a number or as the name of one of the
// container's ports.
func portOf(p intstr.IntOrString, c *v1.Container) (int, error) {
	port := p.IntValue()
	if p.Type == intstr.String {
		for i := range c.Ports {
			if c.Ports[i].Name == p.StrVal {
				port = int(c.Ports[i].ContainerPort)
			}
		}
	}
	if port <= 0 || port > 65535 {
		return 0, fmt.Errorf("invalid port number: %s", p.String())
	}
	return port, nil
}
