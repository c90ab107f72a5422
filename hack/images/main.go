// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command images writes the OCI archives that nodes are loaded with: the pod
// sandbox, CoreDNS, busybox and the quick start's web server. Layers are
// deterministic (times, owners and order are fixed), so that the same inputs
// give the same digests on every machine. Layers are not compressed: they are
// imported on the machine that wrote them, where gzip only costs time.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// inputs are the programs from which the images are built.
type inputs struct {
	Pause, CoreDNS, Ingress, Busybox, Web, Index string
	// Programs is the directory of the programs in the Conformance suite's images, and Sources that
	// of the other files. If Programs is set, the suite's images are written instead of those that
	// every node has.
	Programs, Sources string
	// Operator is the program of the e2e tests' operator. If it is set, only the operator's image
	// is written.
	Operator string
	// Driver is the program of the e2e tests' storage driver. If it is set, only the driver's image
	// is written.
	Driver string
	// Mock is the program of the mock storage driver's image, and Populator the program that fills
	// volumes. If Mock is set, only the images that the test suite deploys with storage drivers are
	// written.
	Mock, Populator string
	// Store is the program of the e2e tests' database. If it is set, only the database's image is
	// written.
	Store string
	// Sidecars is the directory of the programs of Kubernetes' CSI sidecars. If it is set, only the
	// sidecars' images are written.
	Sidecars string
	// Debian is a directory with Debian packages, the base of agnhost.
	Debian string
}

func run(args []string, stderr io.Writer) error {
	var in inputs
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&in.Pause, "pause", "", "the sandbox's program")
	flags.StringVar(&in.CoreDNS, "coredns", "", "the CoreDNS program")
	flags.StringVar(&in.Ingress, "ingress", "", "the ingress proxy's program")
	flags.StringVar(&in.Busybox, "busybox", "", "a static busybox")
	flags.StringVar(&in.Web, "web", "", "the web server's program")
	flags.StringVar(&in.Index, "index", "", "the web server's first page")
	flags.StringVar(&in.Programs, "programs", "", "directory of the Conformance suite's programs; makes its images")
	flags.StringVar(&in.Sources, "sources", "", "directory of the suite's sources of images")
	flags.StringVar(&in.Debian, "debian", "", "directory with the Debian packages that agnhost stands on")
	flags.StringVar(&in.Operator, "operator", "", "the program of the e2e tests' operator; makes its image")
	flags.StringVar(&in.Driver, "driver", "", "the program of the e2e tests' storage driver; makes its image")
	flags.StringVar(&in.Mock, "mock", "", "the program beside the test suite's mock storage driver; makes its images")
	flags.StringVar(&in.Populator, "populator", "", "the program that fills volumes for the test suite, with -mock")
	flags.StringVar(&in.Store, "store", "", "the program of the e2e tests' database; makes its image")
	flags.StringVar(&in.Sidecars, "sidecars", "", "directory of Kubernetes' CSI sidecars; makes their images")
	out := flags.String("out", "", "directory to write the archives to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || flags.NArg() > 0 {
		return errors.New("want -out and no arguments")
	}
	list := in.specs
	if in.Programs != "" {
		list = in.conformance
	}
	if in.Operator != "" {
		list = in.operator
	}
	if in.Driver != "" {
		list = in.driver
	}
	if in.Mock != "" {
		list = in.mock
	}
	if in.Store != "" {
		list = in.store
	}
	if in.Sidecars != "" {
		list = in.sidecars
	}
	specs, err := list()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return fmt.Errorf("output directory: %w", err)
	}
	for _, s := range specs {
		if err := s.write(filepath.Join(*out, s.File+".tar")); err != nil {
			return fmt.Errorf("image %s: %w", s.File, err)
		}
		fmt.Fprintf(stderr, "images: %s\n", s.File)
	}
	return nil
}
