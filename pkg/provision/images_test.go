// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeCtr is a program that writes its arguments to a file, and prints two images if it is to list some. It fails
// for an archive with the name broken.tar.
const fakeCtr = `#!/bin/sh
echo "$*" >>"${0%/*}/calls"
case "$*" in
*" ls "*) echo "a:1"; echo "b:2"; echo "a warning" >&2 ;;
*broken.tar) echo "no space" >&2; exit 1 ;;
esac
`

// TestImages checks how images are pinned, and that only those of other releases lose their pins.
func TestImages(t *testing.T) {
	tools := t.TempDir()
	if err := os.WriteFile(filepath.Join(tools, "ctr"), []byte(fakeCtr), 0o755); err != nil {
		t.Fatal(err)
	}
	i := Images{Tools: tools, Socket: "/s"}
	if err := i.Import(t.Context(), "/images/x.tar", Pinned, ImageRelease+"=2"); err != nil {
		t.Error(err)
	}
	if err := i.Import(t.Context(), "/images/broken.tar"); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("broken archive: %v", err)
	}
	if err := i.Unpin(t.Context(), []string{"1.0", "2"}); err != nil {
		t.Error(err)
	}
	calls, err := os.ReadFile(filepath.Join(tools, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	const ctr, release = "--address /s --namespace k8s.io images ", "machines.keelson.dev/release"
	const quoted = `labels."` + release + `"`
	want := ctr + "import --label io.cri-containerd.pinned=pinned --label " + release + "=2 /images/x.tar\n" +
		ctr + "import /images/broken.tar\n" +
		ctr + "ls --quiet " + quoted + "," + quoted + `!="1.0",` + quoted + `!="2"` + "\n" +
		ctr + "label a:1 io.cri-containerd.pinned= " + release + "=\n" +
		ctr + "label b:2 io.cri-containerd.pinned= " + release + "=\n"
	if string(calls) != want {
		t.Errorf("calls:\n%s\nwant:\n%s", calls, want)
	}
}
