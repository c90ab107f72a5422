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
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/transport"

	"keelson.dev/keelson/pkg/release"
)

// errVersion is returned by Parse if the command line has --version.
var errVersion = errors.New("--version was given")

// Main is the main function of a process. It calls run with a context that ends at SIGINT and
// SIGTERM; run must return then. If run returns an error, Main prints it and exits with code 1. run
// must return errors of Parse unchanged.
func Main(name string, run func(ctx context.Context, args []string, stderr io.Writer) error) {
	ReloadCertificates()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
	case errors.Is(err, errVersion):
		fmt.Printf("Keelson %s (Kubernetes %s)\n", release.Version, Version)
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// certificateReload is how often clients look whether the files of their certificate have changed.
const certificateReload = 10 * time.Second

// ReloadCertificates makes clients of the API server use a renewed client certificate within ten
// seconds, instead of client-go's five minutes. It must be called before the first client is made.
func ReloadCertificates() { transport.CertCallbackRefreshDuration = certificateReload }

// Parse defines the flag --version and parses a process's command line. Arguments that are not
// flags are an error. If the command line has --version, Parse returns an error that Main
// recognizes, and the caller must return it without starting its work.
func Parse(fs *pflag.FlagSet, args []string) error {
	version := fs.Bool("version", false, "print the version and exit")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *version {
		return errVersion
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%q does not take any arguments, got %q", fs.Name(), fs.Args())
	}
	return nil
}
