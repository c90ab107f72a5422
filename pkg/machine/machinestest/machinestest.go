// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machinestest gives tests an API server that knows the objects of clusters on machines. Only
// tests import it.
package machinestest

import (
	"net/netip"
	"testing"

	"k8s.io/client-go/dynamic"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/provision"
)

// Start starts an API server with the add-ons of a cluster on machines. It serves the resource of Machines
// a moment later.
func Start(t *testing.T) *testserver.Server {
	t.Helper()
	s := testserver.Start(t, testserver.Options{})
	objects, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	cluster := &provision.Cluster{Name: "c", Domain: "cluster.local", Machines: true, Families: []provision.Family{{
		Pods: netip.MustParsePrefix("10.244.0.0/16"), Services: netip.MustParsePrefix("10.96.0.0/16"),
		DNS: netip.MustParseAddr("10.96.0.10"),
	}}}
	if err := cluster.ApplyAddons(t.Context(), objects, clock.Real()); err != nil {
		t.Fatal(err)
	}
	return s
}
