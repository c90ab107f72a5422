//go:build tools

// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubernetes136 lists the programs of Kubernetes 1.36 that tests run beside Keelson.
package kubernetes136

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
