// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unshare runs the tests of a package in a namespace of their own:
// what they mount, or the links, addresses and rules they make, is seen by no
// one else and goes with them, however they end.
//
// A package's TestMain calls Run; a test that cannot do without the namespace
// calls Need. Without root there is no namespace, and such tests are skipped.
package unshare

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Namespace is what tests have of their own.
type Namespace uintptr

const (
	// Mount makes mounts that do not reach the machine.
	Mount Namespace = syscall.CLONE_NEWNS
	// Network is an empty network, with its loopback up.
	Network Namespace = syscall.CLONE_NEWNET
)

// inside tells the second run of a test binary that it is in its namespace.
const inside = "KEELSON_TEST_UNSHARED"

// Run runs m's tests, with root in a namespace ns: the test binary starts
// itself again there. It ends the process.
func Run(m *testing.M, ns Namespace) {
	if os.Getenv(inside) != "" {
		if err := prepare(ns); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	if os.Getuid() != 0 {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: uintptr(ns), Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		panic(err)
	}
	os.Exit(0)
}

// prepare makes the namespace usable.
func prepare(ns Namespace) error {
	if ns == Mount {
		return unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// Need skips a test that has no namespace of its own.
func Need(tb testing.TB) {
	tb.Helper()
	if os.Getenv(inside) == "" {
		tb.Skip("needs root for a namespace of its own")
	}
}
