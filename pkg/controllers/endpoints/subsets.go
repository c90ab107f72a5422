// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// repack converts subsets to a canonical form, so that subsets with the same meaning are equal:
// ports with the same addresses and readiness form one subset, and subsets, ports and addresses are
// sorted. An address that is listed as both ready and not ready counts as not ready.
func repack(subsets []v1.EndpointSubset) []v1.EndpointSubset {
	var ports []*portGroup
	byPort := map[string]*portGroup{}
	addresses := map[addressKey]v1.EndpointAddress{}
	for i := range subsets {
		for _, port := range subsetPorts(&subsets[i]) {
			name := portText(port)
			g := byPort[name]
			if g == nil {
				g = &portGroup{port: port, ready: map[addressKey]bool{}}
				byPort[name] = g
				ports = append(ports, g)
			}
			g.add(addresses, subsets[i].Addresses, true)
			g.add(addresses, subsets[i].NotReadyAddresses, false)
		}
	}
	byAddresses := map[string]*v1.EndpointSubset{}
	for _, g := range ports {
		name := g.text()
		s := byAddresses[name]
		if s == nil {
			s = &v1.EndpointSubset{}
			for _, key := range slices.SortedFunc(maps.Keys(g.ready), addressKey.compare) {
				if g.ready[key] {
					s.Addresses = append(s.Addresses, addresses[key])
				} else {
					s.NotReadyAddresses = append(s.NotReadyAddresses, addresses[key])
				}
			}
			byAddresses[name] = s
		}
		if g.port != nil {
			s.Ports = append(s.Ports, *g.port)
		}
	}
	out := make([]v1.EndpointSubset, 0, len(byAddresses))
	for _, name := range slices.Sorted(maps.Keys(byAddresses)) {
		s := byAddresses[name]
		slices.SortFunc(s.Ports, func(a, b v1.EndpointPort) int { return strings.Compare(portText(&a), portText(&b)) })
		out = append(out, *s)
	}
	return out
}

// addressKey identifies an address of a pod. Several pods may have the same IP address if they use
// the network of their node.
type addressKey struct {
	ip  string
	uid types.UID
}

func (k addressKey) compare(l addressKey) int {
	return cmp.Or(strings.Compare(k.ip, l.ip), strings.Compare(string(k.uid), string(l.uid)))
}

// portGroup contains the addresses that have a port, and whether each is ready. port is nil for
// Services without ports.
type portGroup struct {
	port  *v1.EndpointPort
	ready map[addressKey]bool
}

func subsetPorts(s *v1.EndpointSubset) []*v1.EndpointPort {
	if len(s.Ports) == 0 {
		return []*v1.EndpointPort{nil}
	}
	out := make([]*v1.EndpointPort, len(s.Ports))
	for i := range s.Ports {
		out[i] = &s.Ports[i]
	}
	return out
}

func portText(p *v1.EndpointPort) string {
	if p == nil {
		return ""
	}
	protocol := "-"
	if p.AppProtocol != nil {
		protocol = "=" + *p.AppProtocol
	}
	return fmt.Sprintf("%s/%05d/%s/%s", p.Name, p.Port, p.Protocol, protocol)
}

func (g *portGroup) add(all map[addressKey]v1.EndpointAddress, addresses []v1.EndpointAddress, ready bool) {
	for _, a := range addresses {
		key := addressKey{ip: a.IP}
		if a.TargetRef != nil {
			key.uid = a.TargetRef.UID
		}
		if _, there := all[key]; !there {
			all[key] = a
		}
		if was, there := g.ready[key]; !there || was {
			g.ready[key] = ready
		}
	}
}

func (g *portGroup) text() string {
	var b strings.Builder
	for _, key := range slices.SortedFunc(maps.Keys(g.ready), addressKey.compare) {
		fmt.Fprintf(&b, "%s/%s/%v,", key.ip, key.uid, g.ready[key])
	}
	return b.String()
}

// truncate removes addresses in excess of maxAddresses, and reports whether it removed any. It
// removes addresses that are not ready first, and the same fraction of addresses from each subset.
func truncate(subsets []v1.EndpointSubset) bool {
	ready, notReady := 0, 0
	for i := range subsets {
		ready += len(subsets[i].Addresses)
		notReady += len(subsets[i].NotReadyAddresses)
	}
	if ready+notReady <= maxAddresses {
		return false
	}
	all, room := notReady, maxAddresses-ready
	if ready > maxAddresses {
		all, room = ready, maxAddresses
	}
	left := room
	share := func(addresses []v1.EndpointAddress) []v1.EndpointAddress {
		n := min((len(addresses)*room+all-1)/all, left, len(addresses))
		left -= n
		return addresses[:n]
	}
	for i := range subsets {
		s := &subsets[i]
		if ready > maxAddresses {
			s.Addresses, s.NotReadyAddresses = share(s.Addresses), nil
		} else {
			s.NotReadyAddresses = share(s.NotReadyAddresses)
		}
	}
	return true
}
