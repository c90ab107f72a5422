// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build tools

package main

import _ "k8s.io/kube-openapi/cmd/openapi-gen" // the program that generates package gen
