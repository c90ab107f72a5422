// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command ctl is the command-line client. It has all commands of kubectl, and `ctl cluster` to
// create clusters on this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"keelson.dev/keelson/pkg/ctl"
)

func main() {
	err := run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr)
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		os.Exit(ended.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ctl:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	return ctl.Run(ctx, args, stdin, stdout, stderr)
}
