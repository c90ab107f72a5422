// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command ingress serves Ingresses of the class keelson from a pod.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"keelson.dev/keelson/pkg/ingress/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command.Run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "ingress:", err)
		os.Exit(1)
	}
}
