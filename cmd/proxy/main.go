// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command proxy makes Services work on a node, by nftables.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"keelson.dev/keelson/pkg/proxy/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command.Run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
}
