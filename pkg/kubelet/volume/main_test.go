// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const inNamespace = "KEELSON_TEST_MOUNT_NAMESPACE"

// TestMain runs the tests in a mount namespace of their own, when it may make one: what they mount is seen by no
// one else and goes with them.
func TestMain(m *testing.M) {
	if os.Getuid() != 0 || os.Getenv(inNamespace) != "" {
		if os.Getenv(inNamespace) != "" {
			if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
				panic(err)
			}
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		panic(err)
	}
}

// needsMounts skips a test that cannot mount.
func needsMounts(t *testing.T) {
	t.Helper()
	if os.Getenv(inNamespace) == "" {
		t.Skip("needs root for a mount namespace of its own")
	}
}
