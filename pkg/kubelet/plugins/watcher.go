// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugins registers the plugins whose sockets are in the registration directory. It asks
// each plugin for its type and name, passes it to the Handler of that type, and reports the result to
// the plugin. A plugin is unregistered when its socket is removed, and registered again when the
// socket is created again. A rejected plugin is retried after half a second, and then less and less often.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"keelson.dev/api/clock"
)

const (
	// firstRetry is the time until the first further attempt to register a plugin, as in Kubernetes. On a new
	// machine, the first attempt fails until the kubelet has its Node.
	firstRetry = 500 * time.Millisecond
	// period is the interval at which the directory is read even without an event.
	period      = 10 * time.Second
	callTimeout = 10 * time.Second
)

// Plugin is a plugin of the kubelet, such as a CSI driver, that is to be registered.
type Plugin struct {
	Name string
	// Endpoint is the socket of the plugin's service.
	Endpoint string
	// Versions are the supported versions of the service.
	Versions []string
}

// Handler registers the plugins of one type.
type Handler interface {
	// Register registers a plugin, and replaces an earlier one with the same name. It returns an
	// error if the plugin cannot be registered.
	Register(ctx context.Context, p Plugin) error
	// Unregister unregisters a plugin, unless another endpoint has replaced it.
	Unregister(p Plugin)
}

// Config holds a Watcher's settings.
type Config struct {
	// Dir is the directory with the plugins' sockets.
	Dir string
	// Handlers are the handlers by plugin type.
	Handlers map[string]Handler
	Clock    clock.Clock
	Log      *slog.Logger
}

// Watcher watches the registration directory.
type Watcher struct {
	cfg   Config
	known map[string]*entry // entries by path of the socket
}

// entry is the socket of a plugin in the registration directory.
type entry struct {
	made    time.Time
	handler Handler // nil if the registration failed
	plugin  Plugin
}

// New returns a Watcher. It does not read the directory yet.
func New(cfg Config) *Watcher { return &Watcher{cfg: cfg, known: map[string]*entry{}} }

// Run watches the directory until ctx ends. Plugins stay registered when it returns.
func (w *Watcher) Run(ctx context.Context) error {
	if err := os.MkdirAll(w.cfg.Dir, 0o750); err != nil {
		return fmt.Errorf("plugin registration: %w", err)
	}
	var events chan fsnotify.Event
	if n, err := fsnotify.NewWatcher(); err != nil {
		w.cfg.Log.Warn("Failed to watch for plugins", "err", err)
	} else {
		defer func() { _ = n.Close() }()
		if err := n.Add(w.cfg.Dir); err != nil {
			w.cfg.Log.Warn("Failed to watch the directory of plugins", "dir", w.cfg.Dir, "err", err)
		}
		events = n.Events
	}
	for retry := firstRetry; ; {
		pause := period
		if w.scan(ctx) {
			retry = firstRetry
		} else {
			pause, retry = retry, min(2*retry, period)
		}
		t := w.cfg.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-events:
		case <-t.C():
		}
		t.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// scan registers the plugins of new sockets, and unregisters those of removed sockets. It returns false if a plugin
// could not be registered.
func (w *Watcher) scan(ctx context.Context) (complete bool) {
	entries, err := os.ReadDir(w.cfg.Dir)
	if err != nil {
		w.cfg.Log.Warn("Failed to list the sockets of plugins", "err", err)
		return false
	}
	complete = true
	there := map[string]bool{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode()&fs.ModeSocket == 0 || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(w.cfg.Dir, e.Name())
		there[path] = true
		if old := w.known[path]; old != nil {
			if old.handler != nil && old.made.Equal(info.ModTime()) {
				continue
			}
			w.drop(path)
		}
		w.known[path] = w.take(ctx, path, info.ModTime())
		complete = complete && w.known[path].handler != nil
	}
	for path := range w.known {
		if !there[path] {
			w.drop(path)
		}
	}
	return complete
}

func (w *Watcher) drop(path string) {
	if e := w.known[path]; e.handler != nil {
		e.handler.Unregister(e.plugin)
		w.cfg.Log.Info("Plugin unregistered", "plugin", e.plugin.Name)
	}
	delete(w.known, path)
}

// take asks a plugin for its type and name and passes it to the handler of that type.
func (w *Watcher) take(ctx context.Context, path string, made time.Time) *entry {
	e := &entry{made: made}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"))
	if err != nil {
		w.cfg.Log.Warn("Failed to connect to a plugin", "socket", path, "err", err)
		return e
	}
	defer func() { _ = conn.Close() }()
	client := api.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &api.InfoRequest{})
	if err != nil {
		w.cfg.Log.Debug("Plugin does not answer", "socket", path, "err", err)
		return e
	}
	e.plugin = Plugin{Name: info.GetName(), Endpoint: info.GetEndpoint(), Versions: info.GetSupportedVersions()}
	if e.plugin.Endpoint == "" {
		e.plugin.Endpoint = path
	}
	handler := w.cfg.Handlers[info.GetType()]
	if handler == nil {
		err = fmt.Errorf("no handler registered for plugin type: %s", info.GetType())
	} else {
		err = handler.Register(ctx, e.plugin)
	}
	status := &api.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		status.Error = err.Error()
		w.cfg.Log.Warn("Failed to register a plugin", "plugin", info.GetName(), "err", err)
	}
	if _, told := client.NotifyRegistrationStatus(ctx, status); told != nil {
		err = errors.Join(err, told)
		w.cfg.Log.Warn("Failed to notify a plugin of its registration", "plugin", info.GetName(), "err", told)
		if status.PluginRegistered {
			handler.Unregister(e.plugin)
		}
	}
	if err == nil {
		e.handler = handler
		w.cfg.Log.Info("Plugin registered", "plugin", info.GetName(), "type", info.GetType())
	}
	return e
}
