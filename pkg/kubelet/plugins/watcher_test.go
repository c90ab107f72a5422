// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	testingclock "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
)

// plugin implements the registration service and records the results that it is sent.
type plugin struct {
	api.UnimplementedRegistrationServer
	info *api.PluginInfo

	mu   sync.Mutex
	told []string
}

func (p *plugin) GetInfo(context.Context, *api.InfoRequest) (*api.PluginInfo, error) {
	return p.info, nil
}

func (p *plugin) NotifyRegistrationStatus(_ context.Context,
	s *api.RegistrationStatus) (*api.RegistrationStatusResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.PluginRegistered {
		p.told = append(p.told, "registered")
	} else {
		p.told = append(p.told, s.Error)
	}
	return &api.RegistrationStatusResponse{}, nil
}

func (p *plugin) serve(t *testing.T, socket string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	api.RegisterRegistrationServer(s, p)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return s.Stop
}

// handler is a Handler that records its calls.
type handler struct {
	refuses error
	did     []string
}

func (h *handler) Register(_ context.Context, p Plugin) error {
	if h.refuses != nil {
		return h.refuses
	}
	h.did = append(h.did, "+"+p.Name+" "+p.Versions[0])
	return nil
}

func (h *handler) Unregister(p Plugin) { h.did = append(h.did, "-"+p.Name) }

func TestWatcher(t *testing.T) {
	dir, err := os.MkdirTemp("", "k") // the path of a socket has a small maximum length
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	h := &handler{refuses: errors.New("not now")}
	w := New(Config{Dir: dir, Handlers: map[string]Handler{"T": h}, Clock: clock.Real(),
		Log: slog.New(slog.DiscardHandler)})
	p := &plugin{info: &api.PluginInfo{Type: "T", Name: "p", SupportedVersions: []string{"v1"}}}
	stop := p.serve(t, filepath.Join(dir, "p.sock"))
	other := &plugin{info: &api.PluginInfo{Type: "U", Name: "q", SupportedVersions: []string{"v1"}}}
	other.serve(t, filepath.Join(dir, "q.sock"))
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.scan(t.Context())
	h.refuses = nil
	w.scan(t.Context()) // calls the handler again, because it rejected the plugin before
	w.scan(t.Context()) // does not call the handler again, because it has accepted the plugin
	if want := []string{"not now", "registered"}; !slices.Equal(p.told, want) || !slices.Equal(h.did, []string{"+p v1"}) {
		t.Errorf("results %q, calls %q", p.told, h.did)
	}
	if want := "no handler registered for plugin type: U"; other.told[0] != want {
		t.Errorf("got %q, want %q", other.told, want)
	}
	stop() // stops the server, which removes its socket
	w.scan(t.Context())
	again := &plugin{info: p.info}
	again.serve(t, filepath.Join(dir, "p.sock"))
	w.scan(t.Context())
	if want := []string{"+p v1", "-p", "+p v1"}; !slices.Equal(h.did, want) {
		t.Errorf("did %q, want %q", h.did, want)
	}
}

// TestRetry checks that a plugin that was rejected is retried soon.
func TestRetry(t *testing.T) {
	dir, err := os.MkdirTemp("", "k") // the path of a socket has a small maximum length
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	clk := testingclock.NewFakeClock(time.Now())
	h := make(rejecting, 2)
	w := New(Config{Dir: dir, Handlers: map[string]Handler{"T": h}, Clock: clk, Log: slog.New(slog.DiscardHandler)})
	p := &plugin{info: &api.PluginInfo{Type: "T", Name: "p", SupportedVersions: []string{"v1"}}}
	p.serve(t, filepath.Join(dir, "p.sock"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	for _, pause := range []time.Duration{firstRetry, 2 * firstRetry} {
		<-h
		for !clk.HasWaiters() {
			runtime.Gosched()
		}
		clk.Step(pause)
	}
	<-h
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// rejecting is a Handler that registers no plugin, and counts the attempts.
type rejecting chan struct{}

func (r rejecting) Register(context.Context, Plugin) error {
	r <- struct{}{}
	return errors.New("not now")
}

func (r rejecting) Unregister(Plugin) {}
