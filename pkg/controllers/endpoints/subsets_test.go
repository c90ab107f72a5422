// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func addresses(ips ...string) []v1.EndpointAddress {
	var out []v1.EndpointAddress
	for _, ip := range ips {
		out = append(out, v1.EndpointAddress{IP: ip})
	}
	return out
}

func ports(numbers ...int32) []v1.EndpointPort {
	var out []v1.EndpointPort
	for _, n := range numbers {
		out = append(out, v1.EndpointPort{Name: fmt.Sprint("p", n), Port: n, Protocol: v1.ProtocolTCP})
	}
	return out
}

func TestRepack(t *testing.T) {
	for name, tc := range map[string]struct{ in, want []v1.EndpointSubset }{
		"nothing": {nil, []v1.EndpointSubset{}},
		"ports of the same addresses": {
			[]v1.EndpointSubset{{Addresses: addresses("2", "1"), Ports: ports(80)},
				{Addresses: addresses("1", "2"), Ports: ports(443)}},
			[]v1.EndpointSubset{{Addresses: addresses("1", "2"), Ports: ports(443, 80)}},
		},
		"addresses of the same port": {
			[]v1.EndpointSubset{{Addresses: addresses("1"), Ports: ports(80)},
				{NotReadyAddresses: addresses("2"), Ports: ports(80)}},
			[]v1.EndpointSubset{{Addresses: addresses("1"), NotReadyAddresses: addresses("2"), Ports: ports(80)}},
		},
		"other readiness, other subset": {
			[]v1.EndpointSubset{{Addresses: addresses("1"), Ports: ports(80)},
				{NotReadyAddresses: addresses("1"), Ports: ports(443)}},
			[]v1.EndpointSubset{{NotReadyAddresses: addresses("1"), Ports: ports(443)},
				{Addresses: addresses("1"), Ports: ports(80)}},
		},
		"both ready and not ready": {
			[]v1.EndpointSubset{{NotReadyAddresses: addresses("1"), Ports: ports(80)},
				{Addresses: addresses("1"), Ports: ports(80)}},
			[]v1.EndpointSubset{{NotReadyAddresses: addresses("1"), Ports: ports(80)}},
		},
		"no ports": {
			[]v1.EndpointSubset{{Addresses: addresses("1")}, {Addresses: addresses("2")}},
			[]v1.EndpointSubset{{Addresses: addresses("1", "2")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, repack(tc.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// meaning returns the pairs of address and port in subsets, and whether each pair is ready.
func meaning(subsets []v1.EndpointSubset) map[string]bool {
	out := map[string]bool{}
	for _, s := range subsets {
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				text := fmt.Sprintf("%s %s %d", a.IP, a.TargetRef.UID, p.Port)
				if _, there := out[text]; !there {
					out[text] = true
				}
			}
			for _, a := range s.NotReadyAddresses {
				out[fmt.Sprintf("%s %s %d", a.IP, a.TargetRef.UID, p.Port)] = false
			}
		}
	}
	return out
}

func TestRepackKeepsMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		address := rapid.Custom(func(t *rapid.T) v1.EndpointAddress {
			return v1.EndpointAddress{IP: fmt.Sprint(rapid.IntRange(1, 4).Draw(t, "ip")), TargetRef: &v1.ObjectReference{
				UID: types.UID(fmt.Sprint(rapid.IntRange(1, 2).Draw(t, "uid"))),
			}}
		})
		subset := rapid.Custom(func(t *rapid.T) v1.EndpointSubset {
			return v1.EndpointSubset{
				Addresses:         rapid.SliceOfN(address, 0, 3).Draw(t, "ready"),
				NotReadyAddresses: rapid.SliceOfN(address, 0, 3).Draw(t, "not ready"),
				Ports:             ports(rapid.SliceOfN(rapid.Int32Range(1, 4), 1, 3).Draw(t, "ports")...),
			}
		})
		in := rapid.SliceOfN(subset, 0, 6).Draw(t, "subsets")
		out := repack(in)
		if want, got := meaning(in), meaning(out); !maps.Equal(want, got) {
			t.Fatalf("meant %v, means %v", want, got)
		}
		if diff := cmp.Diff(out, repack(out)); diff != "" {
			t.Fatal("packed twice: ", diff)
		}
		shuffled := rapid.Permutation(in).Draw(t, "order")
		if diff := cmp.Diff(out, repack(shuffled)); diff != "" {
			t.Fatal("order matters: ", diff)
		}
	})
}

func TestTruncate(t *testing.T) {
	many := func(n int) []v1.EndpointAddress { return make([]v1.EndpointAddress, n) }
	type sizes [2]int // the number of ready addresses and the number of addresses that are not ready in a subset
	for name, tc := range map[string]struct {
		in, want []sizes
		cut      bool
	}{
		"fits":                   {[]sizes{{600, 100}, {300, 0}}, []sizes{{600, 100}, {300, 0}}, false},
		"not ready are removed":  {[]sizes{{900, 300}, {0, 100}}, []sizes{{900, 75}, {0, 25}}, true},
		"some ready are removed": {[]sizes{{1500, 10}, {500, 10}}, []sizes{{750, 0}, {250, 0}}, true},
		"shares are rounded up":  {[]sizes{{1001, 0}, {1, 0}, {1, 0}}, []sizes{{999, 0}, {1, 0}, {0, 0}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var subsets []v1.EndpointSubset
			for _, s := range tc.in {
				subsets = append(subsets, v1.EndpointSubset{Addresses: many(s[0]), NotReadyAddresses: many(s[1])})
			}
			if cut := truncate(subsets); cut != tc.cut {
				t.Errorf("cut: %v, want %v", cut, tc.cut)
			}
			var got []sizes
			for _, s := range subsets {
				got = append(got, sizes{len(s.Addresses), len(s.NotReadyAddresses)})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
