// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"log/slog"
	"net/url"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/apiserver/store/kv/etcd/embedded"
)

// serve starts an etcd that listens on a Unix socket, and returns its URL. Etcd uses the host and
// port of such a URL as the name of a file in the working directory.
func serve(t *testing.T) (*embed.Etcd, string) {
	t.Helper()
	cfg := embedded.Config(etcd.Embedded{Dir: t.TempDir(), UnsafeNoFsync: true, Log: slog.New(slog.DiscardHandler)})
	t.Chdir(t.TempDir())
	u := url.URL{Scheme: "unix", Host: "localhost:0"}
	cfg.ListenClientUrls = []url.URL{u}
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	<-server.Server.ReadyNotify()
	return server, u.String()
}
