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

	"keelson.dev/keelson/pkg/release"
)

// errVersion is returned by Parse when --version was given.
var errVersion = errors.New("--version was given")

// Main is the main function of a process. run must return when its context ends, which happens at
// SIGINT and SIGTERM. Main prints an error of run and exits with code 1. run must return errors of
// Parse unchanged.
func Main(name string, run func(ctx context.Context, args []string, stderr io.Writer) error) {
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

// Parse parses a process's command line and adds the flag --version. Arguments that are not flags
// are an error. For --version it returns an error that Main recognizes, and the process must not
// run.
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

// NewMetrics returns a registry with metrics of the Go runtime, of the process, of its memory by
// kind of page, and of its build.
func NewMetrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newMemoryCollector(), buildInfo(), releaseInfo(),
	)
	return r
}

// buildInfo is Kubernetes' metric about the build.
func buildInfo() prometheus.Collector {
	v := VersionInfo()
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info",
		Help: "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, " +
			"git tree state, build date, Go version, and compiler from which Kubernetes was built, and " +
			"platform on which it is running.",
		ConstLabels: prometheus.Labels{
			"major": v.Major, "minor": v.Minor, "git_version": v.GitVersion, "git_commit": v.GitCommit,
			"git_tree_state": v.GitTreeState,
			"build_date":     v.BuildDate, "go_version": v.GoVersion, "compiler": v.Compiler, "platform": v.Platform,
		},
	})
	g.Set(1)
	return g
}

// releaseInfo is the metric of Keelson's own version.
func releaseInfo() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "keelson_build_info",
		Help:        "1, labeled by the version of Keelson.",
		ConstLabels: prometheus.Labels{"version": release.Version},
	})
	g.Set(1)
	return g
}
