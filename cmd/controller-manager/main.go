// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command controller-manager runs the controllers of Kubernetes' built-in kinds.
package main

import (
	"keelson.dev/keelson/pkg/controllers/command"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/memlimit"
)

func main() {
	memlimit.Set(memlimit.Node)
	daemon.Main("controller-manager", command.Run)
}
