// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	maxMessage   = 16 << 20
	maxReconnect = time.Second
	stopMargin   = 15 * time.Second
)

// Client calls one container runtime. It connects on the first call, and again after the runtime
// was restarted.
type Client struct {
	conns   []*grpc.ClientConn
	timeout time.Duration
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient
	// RunSandbox holds making for reading, and TryBetweenSandboxes holds it for writing.
	making sync.RWMutex
	// process is the ID of the process at the other end of the last connection to the runtime.
	process atomic.Int64
	// statuses caches the statuses that the method Pod has read.
	statuses statuses
}

// Target specifies the runtime to which a Client connects.
type Target struct {
	// Endpoint is the runtime's socket, for example unix:///run/containerd/containerd.sock. Images
	// is the socket of the image service if it differs from Endpoint.
	Endpoint, Images string
	// Timeout is the timeout of a call. There are exceptions: creating a sandbox may take twice as
	// long, stopping a container and running a command have timeouts of their own, and pulling an
	// image has none.
	Timeout time.Duration
	// Options are additional options of the gRPC connections.
	Options []grpc.DialOption
}

// Dial returns a Client of the runtime. It does not wait until the runtime is reachable.
func Dial(t Target, m *Metrics) (*Client, error) {
	m.timeout = t.Timeout
	c := &Client{timeout: t.Timeout}
	runtime, err := dial(t.Endpoint, m, append([]grpc.DialOption{grpc.WithContextDialer(c.connect)}, t.Options...))
	if err != nil {
		return nil, err
	}
	c.conns, c.Runtime, c.Images = []*grpc.ClientConn{runtime}, runtimeapi.NewRuntimeServiceClient(runtime),
		runtimeapi.NewImageServiceClient(runtime)
	if t.Images == "" || t.Images == t.Endpoint {
		return c, nil
	}
	images, err := dial(t.Images, m, t.Options)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.conns, c.Images = append(c.conns, images), runtimeapi.NewImageServiceClient(images)
	return c, nil
}

func dial(endpoint string, m *Metrics, options []grpc.DialOption) (*grpc.ClientConn, error) {
	if strings.HasPrefix(endpoint, "/") {
		endpoint = "unix://" + endpoint
	}
	conn, err := grpc.NewClient(endpoint, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithUnaryInterceptor(m.measure),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, MaxDelay: maxReconnect},
			MinConnectTimeout: maxReconnect,
		}),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("runtime endpoint %q: %w", endpoint, err)
	}
	return conn, nil
}

// connect connects to the runtime and records which process serves the connection.
func (c *Client) connect(ctx context.Context, address string) (net.Conn, error) {
	network, path := "tcp", address
	if rest, ok := strings.CutPrefix(address, "unix:"); ok {
		network, path = "unix", strings.TrimPrefix(rest, "//")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, path)
	if err == nil {
		c.process.Store(int64(peer(conn)))
		c.statuses.reset()
	}
	return conn, err
}

// peer returns the ID of the process that listens at the other end of a connection. It returns 0 if
// the connection is not a Unix socket or the process cannot be determined.
func peer(conn net.Conn) (pid int) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	err = raw.Control(func(fd uintptr) {
		if who, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(who.Pid)
		}
	})
	if err != nil {
		return 0
	}
	return pid
}

// Process returns the ID of the process that serves the runtime. It returns 0 if the process is
// unknown or on another machine.
func (c *Client) Process() int { return int(c.process.Load()) }

// Close closes the connections to the runtime.
func (c *Client) Close() error {
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// NotFound reports whether err means that the sandbox, container or image does not exist.
func NotFound(err error) bool { return status.Code(err) == codes.NotFound }

// TimedOut reports whether err means that a call or the runtime's work for it exceeded a time
// limit.
func TimedOut(err error) bool { return status.Code(err) == codes.DeadlineExceeded }

// Message returns the runtime's error message, without the text that gRPC adds.
func Message(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

// Version returns the runtime's name and version.
func (c *Client) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.Runtime.Version(ctx, &runtimeapi.VersionRequest{Version: "0.1.0"})
}

// finishing is how long a call that creates something may continue after the caller's context has
// ended.
const finishing = 30 * time.Second

// detach returns a context for a call that creates something. If such a call is cancelled, the
// runtime may lose track of what it has created: containerd may keep a task running that no CRI
// call lists. A call that has begun therefore continues for up to 30 s after the context parent has
// ended. A sandbox or container that the caller no longer needs is removed later as usual.
func detach(parent context.Context, timeout time.Duration) (context.Context, context.CancelFunc, error) {
	if err := parent.Err(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), timeout)
	stop := context.AfterFunc(parent, func() {
		defer cancel()
		last, done := context.WithTimeout(ctx, finishing)
		defer done()
		<-last.Done()
	})
	return ctx, func() { stop(); cancel() }, nil
}

// RunSandbox creates and starts a sandbox. If ctx ends during the call, the call continues for up
// to 30 s.
func (c *Client) RunSandbox(ctx context.Context, cfg *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	ctx, cancel, err := detach(ctx, 2*c.timeout)
	if err != nil {
		return "", err
	}
	defer cancel()
	c.making.RLock()
	defer c.making.RUnlock()
	r, err := c.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: cfg, RuntimeHandler: handler})
	if err != nil {
		return "", err
	}
	return r.PodSandboxId, nil
}

// TryBetweenSandboxes runs f while no sandbox is being created. If a sandbox is being created now,
// it returns immediately without running f, and ran is false.
func (c *Client) TryBetweenSandboxes(f func() error) (ran bool, err error) {
	if !c.making.TryLock() {
		return false, nil
	}
	defer c.making.Unlock()
	return true, f()
}

// StopSandbox kills all containers of a sandbox and removes its network. It succeeds if the sandbox
// does not exist.
func (c *Client) StopSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, err := c.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return ignoreNotFound(err)
}

// RemoveSandbox removes a stopped sandbox and its containers.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, err := c.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return ignoreNotFound(err)
}

// CreateContainer creates a container in a sandbox. If ctx ends during the call, the call continues
// for up to 30 s.
func (c *Client) CreateContainer(ctx context.Context, sandbox string, cfg *runtimeapi.ContainerConfig,
	sc *runtimeapi.PodSandboxConfig) (string, error) {
	ctx, cancel, err := detach(ctx, c.timeout)
	if err != nil {
		return "", err
	}
	defer cancel()
	r, err := c.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox,
		Config: cfg, SandboxConfig: sc})
	if err != nil {
		return "", err
	}
	return r.ContainerId, nil
}

// StartContainer starts a container that was created. If ctx ends during the call, the call
// continues for up to 30 s.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	ctx, cancel, err := detach(ctx, c.timeout)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = c.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

// StopContainer signals a container to exit, and kills it after the grace period. It returns when
// the container has exited.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace+stopMargin)
	defer cancel()
	_, err := c.Runtime.StopContainer(ctx,
		&runtimeapi.StopContainerRequest{ContainerId: id, Timeout: int64(grace / time.Second)})
	return ignoreNotFound(err)
}

// RemoveContainer removes a stopped container, but not its log.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, err := c.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return ignoreNotFound(err)
}

// UpdateResources changes the resources of a running container.
func (c *Client) UpdateResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	// Drop the cached status even if the call failed, because the runtime may have made the change.
	defer c.statuses.changed(id)
	_, err := c.Runtime.UpdateContainerResources(ctx,
		&runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
	return err
}

// MemoryUsage returns how many bytes of memory a container uses now.
func (c *Client) MemoryUsage(ctx context.Context, id string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := c.Runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		return 0, err
	}
	used := r.GetStats().GetMemory().GetUsageBytes()
	if used == nil {
		return 0, errors.New("the runtime does not report the container's memory usage")
	}
	return int64(used.GetValue()), nil
}

// Run runs a command in a container and waits until it exits. The runtime ends the command after
// timeout. If timeout is 0, the command may run for up to 24 hours.
func (c *Client) Run(ctx context.Context, id string, command []string,
	timeout time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	limit := timeout + stopMargin
	if timeout == 0 {
		limit = 24 * time.Hour
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command,
		Timeout: int64((timeout + time.Second - 1) / time.Second)})
}

// ImageStatus returns an image that the node has, or nil if the node does not have it.
func (c *Client) ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := c.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec})
	if err != nil {
		return nil, err
	}
	return r.Image, nil
}

// PullImage pulls an image and returns its reference. The call has no timeout of its own.
func (c *Client) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (string, error) {
	resp, err := c.Images.PullImage(ctx, r)
	if err != nil {
		return "", err
	}
	return resp.GetImageRef(), nil
}

func ignoreNotFound(err error) error {
	if NotFound(err) {
		return nil
	}
	return err
}
