// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command controller-manager runs the controllers of Kubernetes' own kinds.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"keelson.dev/keelson/pkg/controllers/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command.Run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "controller-manager:", err)
		os.Exit(1)
	}
}
