// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command apiserver serves the Kubernetes API.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"keelson.dev/keelson/pkg/apiserver"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/daemon"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := config.Parse(args, stderr)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if cfg.ShowVersion {
		_, err := fmt.Fprintln(stdout, "Keelson", daemon.Version)
		return err
	}
	log := daemon.NewLog(stderr, cfg.Verbosity)
	s, err := apiserver.New(cfg, apiserver.Deps{Log: log, Getenv: os.Getenv, OwnProcess: true})
	if err != nil {
		return fmt.Errorf("build apiserver: %w", err)
	}
	return s.Run(ctx)
}
