// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command images writes OCI archives of container images. It writes either the images with which
// every node starts (the pod sandbox, CoreDNS, the ingress proxy, busybox and the web server of the
// quick start), or the images of a test suite. Layers are deterministic: times, owners and order
// are fixed, so that the same inputs have the same digests on every machine. Layers are not
// compressed, because they are imported on the machine that wrote them, where compression would
// only cost time.
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

// inputs has the paths of the programs from which the images are built.
type inputs struct {
	Pause, CoreDNS, Ingress, Busybox, Web, Index string
	// Programs is the directory with the programs in the conformance tests' images, and Sources the
	// directory with the other files. If Programs is set, the images of the conformance tests are
	// written instead of those with which every node starts.
	Programs, Sources string
	// Operator is the program of the operator in the e2e tests. If it is set, only the operator's
	// image is written.
	Operator string
	// Driver is the program of the CSI driver in the e2e tests. If it is set, only the driver's
	// image is written.
	Driver string
	// Mock is the program that replaces Kubernetes' mock CSI driver, and Populator the program that
	// fills volumes. If Mock is set, only the images that Kubernetes' test suite deploys with CSI
	// drivers are written.
	Mock, Populator string
	// Store is the program of the database in the e2e tests. If it is set, only the database's
	// image is written.
	Store string
	// Sidecars is the directory with the programs of Kubernetes' CSI sidecars. If it is set, only
	// the sidecars' images are written.
	Sidecars string
	// Kubernetes is the directory with the programs of Kubernetes' control plane, Version their version, and
	// Etcd the program etcd. If Kubernetes is set, only the images of kubeadm's static pods are written.
	Kubernetes, Version, Etcd string
	// Debian is a directory with Debian packages, from which the base layer of agnhost is made.
	Debian string
	// Arch is the architecture of the programs.
	Arch string
}

func run(args []string, stderr io.Writer) error {
	var in inputs
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&in.Pause, "pause", "", "file with the program that runs in pod sandboxes")
	flags.StringVar(&in.CoreDNS, "coredns", "", "file with the program CoreDNS")
	flags.StringVar(&in.Ingress, "ingress", "", "file with the ingress proxy")
	flags.StringVar(&in.Busybox, "busybox", "",
		"file with busybox, linked statically; without it, only the images of the cluster itself are written")
	flags.StringVar(&in.Web, "web", "", "file with the program of the web server")
	flags.StringVar(&in.Index, "index", "", "file with the index page of the web server")
	flags.StringVar(&in.Programs, "programs", "",
		"directory with the programs for the Conformance suite's images; if set, only these images are written")
	flags.StringVar(&in.Sources, "sources", "", "directory with the files besides programs for the Conformance "+
		"suite's images")
	flags.StringVar(&in.Debian, "debian", "",
		"directory with unpacked Debian packages, the base of agnhost's image")
	flags.StringVar(&in.Operator, "operator", "",
		"file with the operator of the e2e tests; if set, only its image is written")
	flags.StringVar(&in.Driver, "driver", "",
		"file with the storage driver of the e2e tests; if set, only its image is written")
	flags.StringVar(&in.Mock, "mock", "",
		"file with the mock storage driver; if set, only the Conformance suite's images for storage are written")
	flags.StringVar(&in.Populator, "populator", "",
		"file with the program that fills volumes; has an effect only with -mock")
	flags.StringVar(&in.Store, "store", "",
		"file with the database of the e2e tests; if set, only its image is written")
	flags.StringVar(&in.Sidecars, "sidecars", "",
		"directory with Kubernetes' CSI sidecars; if set, only their images are written")
	flags.StringVar(&in.Kubernetes, "kubernetes", "",
		"directory with Kubernetes' control plane; if set, only the images of kubeadm's static pods are written")
	flags.StringVar(&in.Version, "version", "", "version of the programs in the directory of -kubernetes")
	flags.StringVar(&in.Etcd, "etcd", "", "file with the program etcd; has an effect only with -kubernetes")
	flags.StringVar(&in.Arch, "arch", "amd64", "architecture of the programs")
	out := flags.String("out", "", "directory in which the OCI archive of each image is written")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || flags.NArg() > 0 {
		return errors.New("-out is required, and no arguments are accepted")
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
	if in.Kubernetes != "" {
		list = in.kubernetes
	}
	specs, err := list()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return fmt.Errorf("output directory: %w", err)
	}
	for _, s := range specs {
		s.Arch = in.Arch
		if err := s.write(filepath.Join(*out, s.File+".tar")); err != nil {
			return fmt.Errorf("image %s: %w", s.File, err)
		}
		fmt.Fprintf(stderr, "images: %s\n", s.File)
	}
	return nil
}
