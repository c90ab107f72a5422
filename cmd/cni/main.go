// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cni is the CNI plugin of the pod network. A container runtime runs it for each sandbox
// that it creates or removes.
package main

import (
	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/network/attach"
)

func main() { attach.Main(clock.Real()) }
