// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unshare runs the tests of a package in a namespace of their own.
// Their mounts, links, addresses and rules are invisible to the rest of the
// machine, and the kernel removes them when the tests end, however they end.
//
// A package's TestMain calls Run; a test that needs the namespace calls Need, one that needs root
// alone calls NeedRoot. Tests of this repository request root only in these two ways. Without root
// and with -short such tests are skipped, so that `make check` runs the same tests for every user.
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

// Namespace is the kind of namespace that tests run in.
type Namespace uintptr

const (
	// Mount is a mount namespace. Mounts in it are not visible outside of it.
	Mount Namespace = syscall.CLONE_NEWNS
	// Network is a network namespace with a loopback link that is up, and nothing else.
	Network Namespace = syscall.CLONE_NEWNET
)

// inside is set in the environment of a test binary that runs in its namespace.
const inside = "KEELSON_TEST_UNSHARED"

// Tests are the tests of a package, usually a *testing.M.
type Tests interface {
	// Run runs the tests and returns the exit code of the process.
	Run() int
}

// Run runs the tests m and exits the process. With root it runs them in a new
// namespace ns, by starting the test binary again there. It does so with -short
// too, so that a test that forgets to call Need cannot change the machine.
func Run(m Tests, ns Namespace) {
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

// Need skips a test if it does not run with root in a namespace of its own, or if -short is set.
func Need(tb testing.TB) {
	tb.Helper()
	if testing.Short() || os.Getenv(inside) == "" {
		tb.Skip("needs root for a namespace of its own")
	}
}

// NeedRoot skips a test if it does not run with root, or if -short is set.
func NeedRoot(tb testing.TB) {
	tb.Helper()
	if testing.Short() || os.Getuid() != 0 {
		tb.Skip("needs root")
	}
}
