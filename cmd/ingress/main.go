// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command ingress serves Ingresses of the class keelson from a pod.
package main

import (
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/ingress/command"
)

func main() { daemon.Main("ingress", command.Run) }
