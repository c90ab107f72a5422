// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command scheduler assigns pending pods to nodes.
package main

import (
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/memlimit"
	"keelson.dev/keelson/pkg/scheduler/command"
)

func main() {
	memlimit.Set(memlimit.Node)
	daemon.Main("scheduler", command.New(nil))
}
