// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command etcd is the unmodified etcd server, built from this module.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
