// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"keelson.dev/keelson/pkg/provision"
)

// importOwnImages imports the images of the release that the machine uses into containerd.
func importOwnImages(ctx context.Context) error {
	name, err := currentRelease()
	if err != nil {
		return err
	}
	return importImages(ctx, name)
}

// importImages imports the images of an installed release into containerd. They are pinned, because a machine may
// have no registry from which it could get them again. Those of releases that are not installed any more are not
// pinned from then on. It can be repeated.
func importImages(ctx context.Context, name string) error {
	archives, err := filepath.Glob(filepath.Join(releases, name, "images", "*.tar*"))
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	for _, a := range archives {
		if err := containerImages.Import(ctx, a, provision.Pinned, provision.ImageRelease+"="+name); err != nil {
			return err
		}
	}
	installed, err := installedReleases(releases)
	if err != nil {
		return err
	}
	return containerImages.Unpin(ctx, installed)
}

// containerImages are the images in the machine's containerd.
var containerImages = provision.Images{Tools: filepath.Join(current, "tools"), Socket: provision.ContainerdSocket}

// installedReleases returns the names of the releases in a directory.
func installedReleases(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("releases: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out, nil
}
