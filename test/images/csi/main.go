// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command csi replaces two programs that Kubernetes' test suite deploys with its mock CSI driver.
// The name under which it is started determines which of the two programs it acts as.
//
//   - csi-node-driver-registrar registers the driver behind a socket with the kubelet.
//   - hostpathplugin connects that socket to the test suite, whose process contains the driver.
//     Without the flag for that, it is the driver of test/csi with the suite's settings.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"keelson.dev/keelson/test/csi/driver"
)

func main() {
	if err := run(context.Background(), os.Args, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "csi:", err)
		os.Exit(1)
	}
}

var errName = errors.New("the program must be named csi-node-driver-registrar or hostpathplugin")

func run(ctx context.Context, args []string, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet(filepath.Base(args[0]), flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Int("v", 0, "has no effect: the verbosity of logs")
	switch flags.Name() {
	case "csi-node-driver-registrar":
		return registrar(ctx, flags, args[1:], stderr)
	case "hostpathplugin":
		return plugin(ctx, flags, args[1:], stderr)
	}
	return fmt.Errorf("%s: %w", args[0], errName)
}

func registrar(ctx context.Context, flags *flag.FlagSet, args []string, stderr io.Writer) error {
	socket := flags.String("csi-address", "/run/csi/socket", "socket of the driver")
	path := flags.String("kubelet-registration-path", "", "path of the driver's socket on the node")
	flags.Duration("timeout", 0, "has no effect: the program waits for the driver without a limit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+*socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"))
	if err != nil {
		return err
	}
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err := errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("name of the driver: %w", err)
	}
	return driver.Register(ctx, info.GetName(), *path, "/registration", slog.New(slog.NewJSONHandler(stderr, nil)))
}

func plugin(ctx context.Context, flags *flag.FlagSet, args []string, stderr io.Writer) error {
	d := &driver.Driver{}
	flags.StringVar(&d.Name, "drivername", "hostpath.csi.k8s.io", "name of the driver")
	flags.StringVar(&d.Node, "nodeid", "", "name of the node")
	flags.StringVar(&d.Root, "statedir", "/csi-data-dir", "directory in which the driver keeps the volumes")
	flags.Int64Var(&d.MaxVolumes, "attach-limit", 0, "maximum number of volumes on a node; 0 means no limit")
	attach := flags.Bool("enable-attach", false, "let the driver attach volumes to nodes")
	topology := flags.Bool("enable-topology", false, "report that a volume can be used only on its own node")
	flags.Bool("node-expand-required", true, "has no effect: volumes are always expanded on the node too")
	socket := flags.String("endpoint", "", "socket of the driver")
	from := flags.String("proxy-endpoint", "",
		"run as a proxy: listen at this address (tcp://:PORT), to which the test suite connects, and forward to --endpoint")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *from != "" {
		return proxy(ctx, *socket, strings.TrimPrefix(*from, "tcp://"))
	}
	d.NoAttach = !*attach
	if *topology {
		d.Zone = d.Node
	}
	return driver.ServeAt(ctx, *socket, d.Serve, grpc.UnaryInterceptor(tell(stderr)))
}

// call is the form in which the test suite expects a driver to log its calls.
type call struct {
	Method    string
	Request   any
	Error     string
	FullError struct {
		Code    codes.Code `json:"code"`
		Message string     `json:"message"`
	}
}

// tell returns a gRPC interceptor that logs each call to w.
func tell(w io.Writer) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		out, err := next(ctx, req)
		c := call{Method: info.FullMethod, Request: req}
		if s := status.Convert(err); s.Code() != codes.OK {
			c.Error, c.FullError.Code, c.FullError.Message = err.Error(), s.Code(), s.Message()
		}
		b, bad := json.Marshal(c)
		if bad != nil {
			return nil, bad
		}
		_, _ = fmt.Fprintf(w, "gRPCCall: %s\n", b) // an error only makes the log incomplete
		return out, err
	}
}

// proxy accepts connections at a socket, and joins each with a connection that the test suite has
// opened in advance.
func proxy(ctx context.Context, socket, address string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	callers, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	suite, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _, _ = callers.Close(), suite.Close() })
	defer stop()
	for {
		a, err := callers.Accept()
		if err != nil {
			return err
		}
		b, err := suite.Accept()
		if err != nil {
			return err
		}
		go join(a, b)
	}
}

// join copies data between two connections in both directions, until one of them ends.
func join(a, b net.Conn) {
	var g errgroup.Group
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		g.Go(func() error {
			_, err := io.Copy(way[0], way[1])
			return errors.Join(err, a.Close(), b.Close())
		})
	}
	_ = g.Wait() // returns an error if a connection is already closed
}
