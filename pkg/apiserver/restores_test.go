// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/apiserver/store/kv/memory"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/epoch"
	"keelson.dev/keelson/pkg/storesnapshot"
)

// fetch sends a GET request with the credentials of rc.
func fetch(t *testing.T, rc *rest.Config, path string) (*http.Response, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(rc)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, rc.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return testserver.Do(t, client, req)
}

// TestEpoch checks that the answers to /readyz, and no others, have the epoch of the store, also those
// without valid credentials. A store without an epoch adds no header.
func TestEpoch(t *testing.T) {
	for _, stored := range []string{"", "1796072400"} {
		db := memory.New(clock.Real())
		if stored != "" {
			if r, err := db.Put(t.Context(), epoch.Key("registry"), []byte(stored), 0, 0); err != nil || !r.OK {
				t.Fatal(r, err)
			}
		}
		s := testserver.Start(t, testserver.Options{KV: db})
		for path, want := range map[string]string{
			"/readyz": stored, "/readyz?verbose": stored, "/livez": "", "/version": "",
		} {
			for name, rc := range map[string]*rest.Config{"administrator": s.Config, "stranger": s.TokenConfig("wrong")} {
				resp, _ := fetch(t, rc, path)
				if got := resp.Header.Get(epoch.Header); got != want {
					t.Errorf("epoch %q, %s: %s of %s has %q", stored, name, resp.Status, path, got)
				}
			}
		}
		s.Stop(t)
	}
}

// TestMalformedEpoch checks that a server does not start with an epoch that it does not understand.
func TestMalformedEpoch(t *testing.T) {
	db := memory.New(clock.Real())
	if r, err := db.Put(t.Context(), epoch.Key("registry"), []byte("next"), 0, 0); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	const want = `epoch: strconv.ParseInt: parsing "next": invalid syntax`
	if err := newServer(t, db).Run(t.Context()); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestStoreSnapshot checks which users get a snapshot of the store, and that a server does not serve it
// unless configured.
func TestStoreSnapshot(t *testing.T) {
	for _, on := range []bool{false, true} {
		s := testserver.Start(t, testserver.Options{Etcd: embedded.Start,
			Configure: func(c *config.Config) { c.Etcd.Snapshots = on }})
		want := map[bool]int{false: http.StatusNotFound, true: http.StatusOK}[on]
		resp, body := fetch(t, s.Config, storesnapshot.Path)
		if resp.StatusCode != want || on != (len(body) > 10_000) {
			t.Errorf("administrator: %s, %d bytes", resp.Status, len(body))
		}
		first := rest.CopyConfig(s.Config)
		first.NextProtos = []string{"http/1.1"}
		resp, body = fetch(t, first, storesnapshot.Path)
		if resp.ProtoMajor != 1 || resp.StatusCode != want || on != (len(body) > 10_000) {
			t.Errorf("administrator, %s: %s, %d bytes", resp.Proto, resp.Status, len(body))
		}
		for _, group := range []string{"system:authenticated", "system:nodes", "system:monitoring"} {
			resp, _ := fetch(t, s.UserConfig(t, "somebody", group), storesnapshot.Path)
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s", group, resp.Status)
			}
		}
		client, err := kubernetes.NewForConfig(s.Config)
		if err != nil {
			t.Fatal(err)
		}
		if err := client.RESTClient().Post().AbsPath(storesnapshot.Path).Do(t.Context()).Error(); err == nil {
			t.Error("POST was accepted")
		}
		s.Stop(t)
	}
}
