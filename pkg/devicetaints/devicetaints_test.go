// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package devicetaints

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

func rule(key string, s *resourcev1.DeviceTaintSelector) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: s, Taint: resourcev1.DeviceTaint{Key: key, Effect: resourcev1.DeviceTaintEffectNoExecute}}}
}

func TestSelects(t *testing.T) {
	for name, tc := range map[string]struct {
		selector *resourcev1.DeviceTaintSelector
		want     bool
	}{
		"no selector":    {nil, false},
		"empty selector": {&resourcev1.DeviceTaintSelector{}, true},
		"driver":         {&resourcev1.DeviceTaintSelector{Driver: ptr.To("d")}, true},
		"another driver": {&resourcev1.DeviceTaintSelector{Driver: ptr.To("e")}, false},
		"all": {&resourcev1.DeviceTaintSelector{Driver: ptr.To("d"), Pool: ptr.To("p"),
			Device: ptr.To("x")}, true},
		"another pool":   {&resourcev1.DeviceTaintSelector{Driver: ptr.To("d"), Pool: ptr.To("q")}, false},
		"another device": {&resourcev1.DeviceTaintSelector{Device: ptr.To("y")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Selects(rule("k", tc.selector), "d", "p", "x"); got != tc.want {
				t.Errorf("selects: %v", got)
			}
		})
	}
}

// TestApply checks that the taints of rules follow those of the driver, and that the published slices
// are not changed.
func TestApply(t *testing.T) {
	published := func() []*resourcev1.ResourceSlice {
		spare := make([]resourcev1.DeviceTaint, 1, 4) // an append must not write into its spare capacity
		spare[0].Key = "own"
		return []*resourcev1.ResourceSlice{
			{Spec: resourcev1.ResourceSliceSpec{Driver: "d", Pool: resourcev1.ResourcePool{Name: "p"},
				Devices: []resourcev1.Device{{Name: "x", Taints: spare}, {Name: "y"}}}},
			{Spec: resourcev1.ResourceSliceSpec{Driver: "e", Devices: []resourcev1.Device{{Name: "x"}}}},
		}
	}
	in := published()
	if out := Apply(in, nil); &out[0] != &in[0] {
		t.Error("without rules, the list was copied")
	}
	driver := ptr.To("d")
	out := Apply(in, []*resourcev1.DeviceTaintRule{
		rule("all", &resourcev1.DeviceTaintSelector{Driver: driver}),
		rule("x", &resourcev1.DeviceTaintSelector{Driver: driver, Device: ptr.To("x")}),
	})
	keys := func(d resourcev1.Device) (out []string) {
		for _, t := range d.Taints {
			out = append(out, t.Key)
		}
		return out
	}
	if got := keys(out[0].Spec.Devices[0]); !cmp.Equal(got, []string{"own", "all", "x"}) {
		t.Errorf("taints of x: %q", got)
	}
	if got := keys(out[0].Spec.Devices[1]); !cmp.Equal(got, []string{"all"}) {
		t.Errorf("taints of y: %q", got)
	}
	if out[1] != in[1] {
		t.Error("a slice that no rule selects was copied")
	}
	if diff := cmp.Diff(published(), in); diff != "" {
		t.Errorf("the published slices have changed:\n%s", diff)
	}
	if spare := in[0].Spec.Devices[0].Taints[:2]; spare[1].Key != "" {
		t.Error("the spare capacity was written")
	}
}
