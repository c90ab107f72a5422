// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

const inNamespace = "KEELSON_TEST_NETWORK_NAMESPACE"

// TestMain runs the tests in a network namespace of their own, when it may make one.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(inNamespace) != "":
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	case os.Getuid() != 0:
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		panic(err)
	}
}

func needsNetwork(t *testing.T) {
	t.Helper()
	if os.Getenv(inNamespace) == "" {
		t.Skip("needs root for a network namespace of its own")
	}
}
