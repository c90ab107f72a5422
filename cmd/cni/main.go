// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cni is the CNI plugin that connects pods to the pod network. A container runtime runs it
// each time that it creates or removes a pod sandbox.
package main

import (
	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/network/attach"
)

func main() { attach.Main(clock.Real()) }
