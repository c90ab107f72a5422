// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unshare runs the tests of a package in their own mount or network namespace. Their
// mounts, links, addresses and rules are not visible to the rest of the machine. The kernel removes
// them when the tests end, even if they crash.
//
// The TestMain function of a package calls Run. A test that needs the namespace calls Need. A test
// that needs only root calls NeedRoot. Tests of this repository may require root only in these two
// ways. Without root or with -short, such tests are skipped, so that "make check" runs the same
// tests for every user.
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

// Namespace is the kind of namespace in which tests run.
type Namespace uintptr

const (
	// Mount is a mount namespace. Mounts inside it are not visible outside.
	Mount Namespace = syscall.CLONE_NEWNS
	// Network is a network namespace that has only a loopback link, which is up.
	Network Namespace = syscall.CLONE_NEWNET
)

// inside is an environment variable that is set if the test binary already runs in its namespace.
const inside = "KEELSON_TEST_UNSHARED"

// Tests is the set of tests of a package, usually a *testing.M.
type Tests interface {
	// Run runs the tests and returns the exit code for the process.
	Run() int
}

// Run runs the tests m and exits the process. As root, it starts the test binary again in a new
// namespace ns and runs the tests there. It does so even with -short, so that a test that forgets
// to call Need cannot change the machine.
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

// prepare sets up the new namespace: private mounts, or a loopback link that is up.
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

// Need skips a test unless it runs as root in its own namespace and without -short.
func Need(tb testing.TB) {
	tb.Helper()
	if testing.Short() || os.Getenv(inside) == "" {
		tb.Skip("needs root for a namespace of its own")
	}
}

// NeedRoot skips a test unless it runs as root and without -short.
func NeedRoot(tb testing.TB) {
	tb.Helper()
	if testing.Short() || os.Getuid() != 0 {
		tb.Skip("needs root")
	}
}
