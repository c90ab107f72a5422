// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devicetaints applies DeviceTaintRules, with which administrators taint devices, to the
// devices that drivers publish. A rule without a selector selects no device; an empty selector
// selects all devices. The package is pure: it does no I/O and keeps no state.
package devicetaints

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
)

// Selects reports whether a rule selects a device, which is given by its driver, pool and name.
func Selects(rule *resourcev1.DeviceTaintRule, driver, pool, device string) bool {
	s := rule.Spec.DeviceSelector
	is := func(want *string, have string) bool { return want == nil || *want == have }
	return s != nil && is(s.Driver, driver) && is(s.Pool, pool) && is(s.Device, device)
}

// Of returns the taints of a device: those that its driver published, and then those of the rules
// that select it. It does not change published.
func Of(published []resourcev1.DeviceTaint, rules []*resourcev1.DeviceTaintRule,
	driver, pool, device string) []resourcev1.DeviceTaint {
	out := slices.Clip(published)
	for _, r := range rules {
		if Selects(r, driver, pool, device) {
			out = append(out, r.Spec.Taint)
		}
	}
	return out
}

// Apply returns the slices with the taints of the rules. It does not change its arguments. The result
// shares those slices that have no device that a rule selects.
func Apply(published []*resourcev1.ResourceSlice, rules []*resourcev1.DeviceTaintRule) []*resourcev1.ResourceSlice {
	if len(rules) == 0 {
		return published
	}
	out := slices.Clone(published)
	for i, s := range published {
		for j := range s.Spec.Devices {
			d := &s.Spec.Devices[j]
			taints := Of(d.Taints, rules, s.Spec.Driver, s.Spec.Pool.Name, d.Name)
			if len(taints) == len(d.Taints) {
				continue
			}
			if out[i] == s {
				changed := *s
				changed.Spec.Devices = slices.Clone(s.Spec.Devices)
				out[i] = &changed
			}
			out[i].Spec.Devices[j].Taints = taints
		}
	}
	return out
}
