// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command deviceplugin is a device plugin for the kubelet, for tests and as an example. Its devices
// have numbers as IDs. A container with devices gets their IDs in the environment variable DEVICES.
//
// Like every device plugin, it stores no state: the kubelet records which container has which
// device. The plugin registers when it starts, and again each time that the kubelet creates its
// socket, because a restarted kubelet has no list of its plugins.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("deviceplugin", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "/var/lib/kubelet/device-plugins", "the kubelet's directory of device plugins")
	resource := flags.String("resource", "test.keelson.dev/number", "resource name by which pods request devices")
	count := flags.Int("count", 2, "number of devices that the plugin offers")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p := &plugin{}
	for i := range *count {
		p.devices = append(p.devices, &api.Device{ID: fmt.Sprint("number-", i), Health: api.Healthy})
	}
	return serve(ctx, *dir, *resource, p)
}

const socket = "test-numbers.sock"

// serve serves the plugin until ctx ends. Each time the kubelet restarts, it serves a new socket
// and registers again, because a kubelet that starts removes the sockets of plugins.
func serve(ctx context.Context, dir, resource string, p *plugin) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	if err := w.Add(dir); err != nil {
		return err
	}
	kubelet := filepath.Join(dir, filepath.Base(api.KubeletSocket))
	for ctx.Err() == nil {
		stop, err := listen(ctx, filepath.Join(dir, socket), p)
		if err != nil {
			return err
		}
		err = register(ctx, kubelet, &api.RegisterRequest{Version: api.Version, Endpoint: socket, ResourceName: resource})
		if err == nil {
			err = another(ctx, w, kubelet)
		}
		stop()
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// listen serves the plugin at a socket until stop is called.
func listen(ctx context.Context, path string, p *plugin) (stop func(), err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // returns an error, because stop ends it
	}()
	return func() { server.Stop(); <-done }, nil
}

// another waits until a restarted kubelet has created its socket.
func another(ctx context.Context, w *fsnotify.Watcher, kubelet string) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.Events:
			if e.Name == kubelet && e.Has(fsnotify.Create) {
				return nil
			}
		case err := <-w.Errors:
			return err
		}
	}
}

// registerTimeout limits how long registering with the kubelet may take.
const registerTimeout = 30 * time.Second

func register(ctx context.Context, socket string, r *api.RegisterRequest) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := api.NewRegistrationClient(conn).Register(ctx, r, grpc.WaitForReady(true)); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	return nil
}

// plugin implements the kubelet's device plugin API.
type plugin struct {
	api.UnimplementedDevicePluginServer
	devices []*api.Device
}

// GetDevicePluginOptions implements api.DevicePluginServer.
func (*plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch implements api.DevicePluginServer. It sends the list of devices once, because the
// list never changes.
func (p *plugin) ListAndWatch(_ *api.Empty, s grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	if err := s.Send(&api.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

// Allocate implements api.DevicePluginServer.
func (*plugin) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	out := &api.AllocateResponse{}
	for _, c := range r.GetContainerRequests() {
		out.ContainerResponses = append(out.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"DEVICES": strings.Join(c.GetDevicesIds(), ",")},
		})
	}
	return out, nil
}
