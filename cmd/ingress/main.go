// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command ingress is an ingress proxy. It runs in a pod and serves Ingresses of the class keelson.
package main

import (
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/ingress/command"
)

func main() { daemon.Main("ingress", command.Run) }
