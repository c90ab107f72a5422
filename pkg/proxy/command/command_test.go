// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"io"
	"slices"
	"testing"

	"github.com/google/nftables"

	"keelson.dev/apiserver/leaktest"
	"keelson.dev/keelson/pkg/nft"
	"keelson.dev/keelson/pkg/proxy/kernel"
	"keelson.dev/keelson/test/unshare"
)

func TestMain(m *testing.M) { unshare.Run(leaktest.Checked{M: m}, unshare.Network) }

// TestCleanup checks that --cleanup removes the proxy's tables and no other tables, and that it
// succeeds if there are none.
func TestCleanup(t *testing.T) {
	unshare.Need(t)
	conn, err := nft.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.AddTable(&nftables.Table{Name: "foreign", Family: nftables.TableFamilyIPv4})
	if err := conn.Commit(nil); err != nil {
		t.Fatal(err)
	}
	tables := func() []string {
		t.Helper()
		list, err := conn.ListTables()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, table := range list {
			names = append(names, table.Name)
		}
		return names
	}
	for _, f := range families() {
		k, err := kernel.Open(kernel.Config{Family: f})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Replace(nil, &kernel.Ranges{}); err != nil {
			t.Fatal(err)
		}
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(tables()); n != 1+len(families()) {
		t.Fatalf("%d tables before: %v", n, tables())
	}
	for range 2 {
		if err := Run(t.Context(), []string{"--cleanup"}, io.Discard); err != nil {
			t.Fatal(err)
		}
		if left := tables(); !slices.Equal(left, []string{"foreign"}) {
			t.Errorf("left: %v", left)
		}
	}
}
