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

const (
	pinLabel = "io.cri-containerd.pinned"
	// Pinned is the label of images that the kubelet does not delete, not even if the disk is almost full.
	Pinned = pinLabel + "=pinned"
	// ImageRelease is a label of images in containerd. It has the release that has imported the image last.
	ImageRelease = "machines.keelson.dev/release"
)

// Images are the images in a containerd, in the namespace that the kubelet uses.
type Images struct {
	Tools  string // the directory of the program ctr
	Socket string // that of containerd
}

// Import imports an OCI image archive. The images in it get labels in the form NAME=VALUE, and lose all others.
func (i Images) Import(ctx context.Context, archive string, labels ...string) error {
	args := []string{"import"}
	for _, label := range labels {
		args = append(args, "--label", label)
	}
	if _, err := i.ctr(ctx, append(args, archive)...); err != nil {
		return fmt.Errorf("import %s: %w", filepath.Base(archive), err)
	}
	return nil
}

// Unpin removes the pins of all images that have the label ImageRelease with none of the given releases. The
// images remain until the kubelet needs their space.
func (i Images) Unpin(ctx context.Context, except []string) error {
	filter := fmt.Sprintf("labels.%q", ImageRelease)
	for _, release := range except {
		filter += fmt.Sprintf(",labels.%q!=%q", ImageRelease, release)
	}
	names, err := i.ctr(ctx, "ls", "--quiet", filter)
	if err != nil {
		return fmt.Errorf("images of earlier releases: %w", err)
	}
	for name := range strings.FieldsSeq(names) {
		if _, err := i.ctr(ctx, "label", name, pinLabel+"=", ImageRelease+"="); err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
	}
	return nil
}

// ctr runs a command of ctr for images, and returns its output.
func (i Images) ctr(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--address", i.Socket, "--namespace", "k8s.io", "images"}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(i.Tools, "ctr"), args...)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w\n%s%s", err, strings.TrimSpace(string(out)), strings.TrimSpace(failure.String()))
	}
	return string(out), nil
}
