// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/pflag"
)

// errVersion is what Parse returns when the version was asked for.
var errVersion = errors.New("version asked for")

// Main is the main function of a process. run is to return when its context ends,
// which it does at SIGINT and SIGTERM; an error of it is told and is exit code 1.
// Errors of Parse are to be returned as they are.
func Main(name string, run func(ctx context.Context, args []string, stderr io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
	case errors.Is(err, errVersion):
		fmt.Println("Keelson", Version)
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Parse reads a command line by the flags of a process, to which it adds
// --version. No process takes arguments that are not flags. An error can be that
// the process was asked something and is not to run, which Main knows.
func Parse(fs *pflag.FlagSet, args []string) error {
	version := fs.Bool("version", false, "print the version and exit")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *version {
		return errVersion
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return nil
}

// NewMetrics returns a registry that has the metrics of Go and of the process.
func NewMetrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
