// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	endpointsliceutil "k8s.io/endpointslice/util"
	netutils "k8s.io/utils/net"
)

// group is the content of one EndpointSlice: endpoints of one address family with the same ports.
type group struct {
	family    discoveryv1.AddressType
	ports     []discoveryv1.EndpointPort
	endpoints []discoveryv1.Endpoint
}

// groupKey identifies groups and slices with the same address family and ports.
type groupKey struct {
	family discoveryv1.AddressType
	ports  endpointsliceutil.PortMapKey
}

func keyOf(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) groupKey {
	// Clone the ports, because NewPortMapKey sorts its argument.
	return groupKey{family, endpointsliceutil.NewPortMapKey(slices.Clone(ports))}
}

// mirrored reports whether Endpoints must be mirrored. Leader election locks and Endpoints with the
// label endpointslice.kubernetes.io/skip-mirror=true are not mirrored.
func mirrored(e *v1.Endpoints) bool {
	_, lock := e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]
	return !lock && e.Labels[discoveryv1.LabelSkipMirror] != "true"
}

// groupsOf returns the groups for Endpoints. It takes no more than `most` addresses of each subset.
// invalid is the number of invalid addresses, and skipped the number of all addresses that were
// left out.
func groupsOf(e *v1.Endpoints, most int) (groups []*group, invalid, skipped int) {
	byKey := map[groupKey]*group{}
	for _, subset := range repack(e.Subsets) {
		ports := slicePorts(subset.Ports)
		room := most
		add := func(addresses []v1.EndpointAddress, ready bool) {
			for _, a := range addresses {
				if room == 0 {
					skipped++
					continue
				}
				endpoint, family, ok := endpointOf(a, ready)
				if !ok {
					invalid++
					skipped++
					continue
				}
				k := keyOf(family, ports)
				if byKey[k] == nil {
					byKey[k] = &group{family: family, ports: ports}
					groups = append(groups, byKey[k])
				}
				byKey[k].endpoints = append(byKey[k].endpoints, endpoint)
				room--
			}
		}
		add(subset.Addresses, true)
		add(subset.NotReadyAddresses, false)
	}
	return groups, invalid, skipped
}

func slicePorts(ports []v1.EndpointPort) []discoveryv1.EndpointPort {
	out := []discoveryv1.EndpointPort{}
	for _, p := range ports {
		out = append(out, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol,
			AppProtocol: p.AppProtocol})
	}
	return out
}

func endpointOf(a v1.EndpointAddress, ready bool) (discoveryv1.Endpoint, discoveryv1.AddressType, bool) {
	ip := netutils.ParseIPSloppy(a.IP)
	if ip == nil {
		return discoveryv1.Endpoint{}, "", false
	}
	out := discoveryv1.Endpoint{
		Addresses:  []string{ip.String()}, // slices contain addresses in canonical form
		Conditions: discoveryv1.EndpointConditions{Ready: &ready}, TargetRef: a.TargetRef, NodeName: a.NodeName,
	}
	if a.Hostname != "" {
		out.Hostname = &a.Hostname
	}
	if ip.To4() != nil {
		return out, discoveryv1.AddressTypeIPv4, true
	}
	return out, discoveryv1.AddressTypeIPv6, true
}

// mirrorChanges are the EndpointSlices to create, update and delete.
type mirrorChanges struct {
	create, update, remove []*discoveryv1.EndpointSlice
}

// planMirror returns the changes after which each group has exactly one slice. Instead of deleting one
// slice and creating another, it updates the existing slice if the address family is the same.
func planMirror(e *v1.Endpoints, groups []*group, existing []*discoveryv1.EndpointSlice) mirrorChanges {
	byKey := map[groupKey][]*discoveryv1.EndpointSlice{}
	for _, s := range existing {
		k := keyOf(s.AddressType, s.Ports)
		byKey[k] = append(byKey[k], s)
	}
	var out mirrorChanges
	for _, g := range groups {
		k := keyOf(g.family, g.ports)
		have := byKey[k]
		delete(byKey, k)
		if len(have) == 0 {
			out.create = append(out.create, mirrorSlice(e, g, ""))
			continue
		}
		out.remove = append(out.remove, have[1:]...)
		if want := mirrorSlice(e, g, have[0].Name); !sameSlice(have[0], want) {
			out.update = append(out.update, want)
		}
	}
	for _, s := range existing {
		if slices.Contains(byKey[keyOf(s.AddressType, s.Ports)], s) {
			out.remove = append(out.remove, s)
		}
	}
	return out.recycle()
}

func (c mirrorChanges) recycle() mirrorChanges {
	out := mirrorChanges{update: c.update, remove: slices.Clone(c.remove)}
	for _, s := range c.create {
		i := slices.IndexFunc(out.remove, func(r *discoveryv1.EndpointSlice) bool { return r.AddressType == s.AddressType })
		if i < 0 {
			out.create = append(out.create, s)
			continue
		}
		s.Name, s.GenerateName = out.remove[i].Name, ""
		out.update, out.remove = append(out.update, s), slices.Delete(out.remove, i, i+1)
	}
	return out
}

// mirrorSlice returns the EndpointSlice for a group. If name is "", the API server generates the name.
func mirrorSlice(e *v1.Endpoints, g *group, name string) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Namespace, Name: name, Labels: map[string]string{}, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(e, v1.SchemeGroupVersion.WithKind("Endpoints"))},
		},
		AddressType: g.family, Ports: g.ports, Endpoints: g.endpoints,
	}
	maps.Copy(out.Labels, e.Labels)
	out.Labels[discoveryv1.LabelServiceName], out.Labels[discoveryv1.LabelManagedBy] = e.Name, mirrorManagedBy
	maps.Copy(out.Annotations, e.Annotations)
	delete(out.Annotations, v1.EndpointsLastChangeTriggerTime)
	delete(out.Annotations, v1.LastAppliedConfigAnnotation)
	if name == "" {
		out.GenerateName = generateName(e.Name)
	}
	return out
}

// generateName returns the metadata.generateName of the slices of a Service. It ends in a hyphen, unless
// the name would then be too long.
func generateName(service string) string {
	if len(validation.NameIsDNSSubdomain(service+"-", true)) == 0 {
		return service + "-"
	}
	return service
}

// sameSlice reports whether the existing EndpointSlice already has the content of the wanted one.
func sameSlice(have, want *discoveryv1.EndpointSlice) bool {
	if len(have.Endpoints) != len(want.Endpoints) || !maps.Equal(have.Labels, want.Labels) ||
		!maps.Equal(have.Annotations, want.Annotations) {
		return false
	}
	for _, r := range have.OwnerReferences {
		if owner := want.OwnerReferences[0]; r.Kind == owner.Kind && r.Name == owner.Name && r.UID != owner.UID {
			return false
		}
	}
	set := endpointsliceutil.EndpointSet{}
	for i := range want.Endpoints {
		set.Insert(&want.Endpoints[i])
	}
	return !slices.ContainsFunc(have.Endpoints, func(h discoveryv1.Endpoint) bool {
		w := set.Get(&h)
		return w == nil || !endpointsliceutil.EndpointsEqualBeyondHash(w, &h)
	})
}
