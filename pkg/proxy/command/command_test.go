// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"io"
	"net/netip"
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

// TestNodePorts checks the addresses that the keywords of nodePortAddresses select.
func TestNodePorts(t *testing.T) {
	for name, c := range map[string]struct {
		list, ranges []string
		primary      bool
	}{
		"none":      {},
		"primary":   {list: []string{"primary"}, primary: true},
		"localhost": {list: []string{"localhost"}, ranges: []string{"127.0.0.0/8", "::1/128"}},
		"mix": {list: []string{"10.1.2.3/8", "all", "primary"}, ranges: []string{"10.0.0.0/8", "0.0.0.0/0", "::/0"},
			primary: true},
	} {
		t.Run(name, func(t *testing.T) {
			var want []netip.Prefix
			for _, s := range c.ranges {
				want = append(want, netip.MustParsePrefix(s))
			}
			if got, primary := nodePorts(c.list); !slices.Equal(got, want) || primary != c.primary {
				t.Errorf("ranges %v, primary %v; want %v, %v", got, primary, want, c.primary)
			}
		})
	}
}
