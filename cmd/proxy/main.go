// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command proxy forwards the traffic of Services on a node, by rules of nftables.
package main

import (
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/memlimit"
	"keelson.dev/keelson/pkg/proxy/command"
)

func main() {
	memlimit.Set(memlimit.Node)
	daemon.Main("proxy", command.Run)
}
