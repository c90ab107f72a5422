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

// ImportImage imports an OCI image archive with the containerd at socket, into the containerd
// namespace that the kubelet uses. tools is the directory of the program ctr.
func ImportImage(ctx context.Context, tools, socket, archive string) error {
	out, err := exec.CommandContext(ctx, filepath.Join(tools, "ctr"), "--address", socket, "--namespace", "k8s.io",
		"images", "import", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import %s: %w\n%s", filepath.Base(archive), err, strings.TrimSpace(string(out)))
	}
	return nil
}
