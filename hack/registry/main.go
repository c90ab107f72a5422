// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command registry is a container registry for the images in OCI archives. It serves each image
// under its name without the host. Nodes that use it as the mirror of all registries therefore pull
// the images of the archives from it. It stores the images in memory and serves plain HTTP.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// nameAnnotation is the annotation in the index of an archive that has the full name of the image.
const nameAnnotation = "io.containerd.image.name"

const headerTimeout = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("registry", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "127.0.0.1:5000", "address at which the registry listens")
	if err := flags.Parse(args); err != nil {
		return err
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))),
		ReadHeaderTimeout: headerTimeout}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	for _, archive := range flags.Args() {
		if err := push(ctx, archive, l.Addr().String()); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", archive, err), server.Close())
		}
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}

// push reads the images of an archive and pushes them to the registry at host.
func push(ctx context.Context, archive, host string) error {
	dir, err := os.MkdirTemp("", "registry-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if out, err := exec.CommandContext(ctx, "tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack: %w: %s", err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	for _, d := range manifest.Manifests {
		if err := pushImage(ctx, index, d, host); err != nil {
			return fmt.Errorf("image %s: %w", d.Annotations[nameAnnotation], err)
		}
	}
	return nil
}

func pushImage(ctx context.Context, index v1.ImageIndex, d v1.Descriptor, host string) error {
	own, err := name.NewTag(d.Annotations[nameAnnotation])
	if err != nil {
		return err
	}
	tag, err := name.NewTag(host+"/"+own.RepositoryStr()+":"+own.TagStr(), name.Insecure)
	if err != nil {
		return err
	}
	img, err := index.Image(d.Digest)
	if err != nil {
		return err
	}
	return remote.Write(tag, img, remote.WithContext(ctx))
}
