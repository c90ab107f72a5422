// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command apiserver is the API server: it serves the Kubernetes API.
package main

import (
	"context"
	"io"
	"os"

	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/keelson/pkg/apiserver"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/memlimit"
)

func main() {
	memlimit.Set(memlimit.Server)
	daemon.Main("apiserver", run)
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	cfg, err := config.Parse(args, stderr)
	if err != nil {
		return err
	}
	s, err := apiserver.New(cfg, apiserver.Deps{Log: cfg.Log.Log(cfg.Verbosity, stderr), StartEtcd: embedded.Start,
		Getenv: os.Getenv})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
