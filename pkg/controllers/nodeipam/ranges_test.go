// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeipam

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestRangesAgainstNaive checks that no range is assigned twice, that no assigned range overlaps
// with occupied addresses, and that all other ranges can be assigned.
func TestRangesAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := netip.MustParsePrefix(
			rapid.SampledFrom([]string{"10.244.0.0/16", "fd00:1::/48", "192.168.7.0/24"}).Draw(t, "whole"))
		mask := whole.Bits() + rapid.IntRange(0, 4).Draw(t, "bits")
		r, err := newRanges(whole, mask, newMetrics(nil))
		if err != nil {
			t.Fatal(err)
		}
		held := map[netip.Prefix]bool{}
		var outside netip.Prefix
		if rapid.Bool().Draw(t, "services") {
			outside = netip.PrefixFrom(whole.Addr(), mask+1)
			r.occupy(outside, services)
		}
		for range 40 {
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				for p := range held {
					r.release(p, "n")
					delete(held, p)
					break
				}
				continue
			}
			p, err := r.next("n")
			free := r.count - len(held)
			if outside.IsValid() {
				free--
			}
			if (err == nil) != (free > 0) {
				t.Fatalf("%d free, error %v", free, err)
			}
			if err != nil {
				continue
			}
			if held[p] || p.Bits() != mask || !whole.Overlaps(p) || outside.IsValid() && p.Overlaps(outside) {
				t.Fatalf("given %s; held %v, outside %v", p, held, outside)
			}
			held[p] = true
		}
	})
}

func TestRangesRefuseWhatDoesNotDivide(t *testing.T) {
	for _, mask := range []int{8, 33} {
		if _, err := newRanges(netip.MustParsePrefix("10.244.0.0/16"), mask, newMetrics(nil)); err == nil {
			t.Errorf("/%d: no error", mask)
		}
	}
}

// TestRangesHeldTwice checks that a range that two nodes have becomes free only when both nodes are
// deleted.
func TestRangesHeldTwice(t *testing.T) {
	r, err := newRanges(netip.MustParsePrefix("10.244.0.0/23"), 24, newMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	p := netip.MustParsePrefix("10.244.0.0/24")
	for _, step := range []struct {
		what string
		got  bool
		want bool
	}{
		{"the first", r.occupy(p, "a"), true},
		{"the first again", r.occupy(p, "a"), true},
		{"the second", r.occupy(p, "b"), false},
		{"outside", r.occupy(netip.MustParsePrefix("10.50.0.1/32"), "c"), false},
	} {
		if step.got != step.want {
			t.Errorf("%s: only holder: %t", step.what, step.got)
		}
	}
	r.release(p, "b")
	if got, err := r.next("d"); err != nil || got == p {
		t.Errorf("got %s, which node a still holds: %v", got, err)
	}
	if got, err := r.next("e"); err == nil {
		t.Errorf("got %s although all ranges are taken", got)
	}
	r.release(p, "a")
	if got, err := r.next("e"); err != nil || got != p {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestMetrics checks the metrics of assigned and released ranges. A range with several holders must
// count once.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	r, err := newRanges(netip.MustParsePrefix("10.244.0.0/22"), 24, newMetrics(registry))
	if err != nil {
		t.Fatal(err)
	}
	r.occupy(netip.MustParsePrefix("10.244.0.0/24"), "a")
	r.occupy(netip.MustParsePrefix("10.244.0.0/24"), "b")
	p, err := r.next("c")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"node_ipam_controller_cidrset_cidrs_allocations_total{clusterCIDR=10.244.0.0/22}":      2,
		"node_ipam_controller_cidrset_allocation_tries_per_request{clusterCIDR=10.244.0.0/22}": 1,
		"node_ipam_controller_cirdset_max_cidrs{clusterCIDR=10.244.0.0/22}":                    4,
		"node_ipam_controller_cidrset_usage_cidrs{clusterCIDR=10.244.0.0/22}":                  0.5,
		"running_managed_controllers{manager=kube-controller-manager,name=nodeipam}":           0,
	}
	if got := controllertest.Metrics(t, registry); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	r.release(netip.MustParsePrefix("10.244.0.0/24"), "a")
	r.release(p, "nobody")
	r.release(p, "c")
	want["node_ipam_controller_cidrset_cidrs_releases_total{clusterCIDR=10.244.0.0/22}"] = 1
	want["node_ipam_controller_cidrset_usage_cidrs{clusterCIDR=10.244.0.0/22}"] = 0.25
	if got := controllertest.Metrics(t, registry); !maps.Equal(got, want) {
		t.Errorf("after the release: %v, want %v", got, want)
	}
}
