// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command deviceplugin is a device plugin of the kubelet, for tests and as an example: devices
// that are numbers. A container that has some finds their names in its environment, as DEVICES.
//
// It remembers nothing, as plugins should: which device belongs to whom is the kubelet's
// business. It listens and registers anew when it starts and each time that a kubelet has made
// its socket, which is how one that was restarted asks for that.
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
	resource := flags.String("resource", "test.keelson.dev/number", "what the devices are asked for as")
	count := flags.Int("count", 2, "how many there are")
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

// serve is there for one kubelet after the other, until ctx ends: each removes the sockets that it finds.
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

// listen serves the plugin at its socket until it is stopped.
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
		_ = server.Serve(l) // it ends when it is stopped
	}()
	return func() { server.Stop(); <-done }, nil
}

// another waits for another kubelet's socket.
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

// registerTimeout is how long a kubelet may take to take the plugin.
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

// plugin answers the kubelet.
type plugin struct {
	api.UnimplementedDevicePluginServer
	devices []*api.Device
}

// GetDevicePluginOptions implements api.DevicePluginServer.
func (*plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch implements api.DevicePluginServer: the devices are the same as long as it runs.
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
