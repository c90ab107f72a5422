// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
)

// TestMessageFile checks that the kubelet reads a termination message only from a regular file. A
// container can replace the file, for example by a pipe, which would block the pod's worker.
func TestMessageFile(t *testing.T) {
	const path = "/dev/termination-log"
	outside := filepath.Join(t.TempDir(), "shadow")
	write(t, outside, "secret")
	for name, c := range map[string]struct {
		plant func(t *testing.T, at string)
		want  string
	}{
		"file": {func(t *testing.T, at string) { write(t, at, "said") }, "said"},
		"large file": {func(t *testing.T, at string) { write(t, at, strings.Repeat("x", 10*maxMessage)) },
			strings.Repeat("x", maxMessage)},
		"none": {func(*testing.T, string) {}, ""},
		"pipe": {func(t *testing.T, at string) {
			if err := unix.Mkfifo(at, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "Error on reading termination log " + path},
		"link": {func(t *testing.T, at string) {
			if err := os.Symlink(outside, at); err != nil {
				t.Fatal(err)
			}
		}, "Error on reading termination log " + path},
		"directory": {func(t *testing.T, at string) {
			if err := os.Mkdir(at, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "Error on reading termination log " + path},
	} {
		t.Run(name, func(t *testing.T) {
			at := filepath.Join(t.TempDir(), "0")
			c.plant(t, at)
			run := &cri.Container{MessagePath: path, MessagePolicy: v1.TerminationMessageReadFile,
				Mounts: []*runtimeapi.Mount{{ContainerPath: path, HostPath: at}}}
			got := (&worker{}).message(run)
			if short, _, _ := strings.Cut(got, ":"); short != c.want || strings.Contains(got, "secret") {
				t.Errorf("message %q, want %q", got, c.want)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
