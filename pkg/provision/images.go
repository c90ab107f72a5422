// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Pinned is the label of images that the kubelet does not delete, not even if the disk is almost full.
const Pinned = "io.cri-containerd.pinned=pinned"

// ImportImage imports an OCI image archive with the containerd at socket, into the containerd
// namespace that the kubelet uses. The image gets labels in the form NAME=VALUE. tools is the directory
// of the program ctr.
func ImportImage(ctx context.Context, tools, socket, archive string, labels ...string) error {
	args := []string{"--address", socket, "--namespace", "k8s.io", "images", "import"}
	for _, label := range labels {
		args = append(args, "--label", label)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(tools, "ctr"), append(args, archive)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import %s: %w\n%s", filepath.Base(archive), err, strings.TrimSpace(string(out)))
	}
	return nil
}
