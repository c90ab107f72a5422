// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubelet runs the pods of a node.
package main

import (
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/kubelet/command"
	"keelson.dev/keelson/pkg/memlimit"
)

func main() {
	memlimit.Set(memlimit.Node)
	daemon.Main("kubelet", command.Run)
}
