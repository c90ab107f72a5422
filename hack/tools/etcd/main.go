// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command etcd is etcd as it is, under its own name.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
