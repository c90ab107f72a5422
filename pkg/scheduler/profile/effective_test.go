// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"encoding/json"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
)

func effective(t *testing.T, c *configv1.KubeSchedulerConfiguration) *configv1.KubeSchedulerConfiguration {
	t.Helper()
	s, err := Build(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Effective(c, s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestEffective checks that Effective fills in defaults, and that a second call with its result
// changes nothing.
func TestEffective(t *testing.T) {
	out := effective(t, &configv1.KubeSchedulerConfiguration{})
	if len(out.Profiles) != 1 || *out.Profiles[0].SchedulerName != "default-scheduler" ||
		*out.PodInitialBackoffSeconds != 1 || *out.PodMaxBackoffSeconds != 10 ||
		out.Kind != "KubeSchedulerConfiguration" || out.APIVersion != "kubescheduler.config.k8s.io/v1" {
		t.Errorf("%+v", out)
	}
	weights := map[string]int32{}
	for _, p := range out.Profiles[0].Plugins.MultiPoint.Enabled {
		weights[p.Name] = *p.Weight
	}
	if len(weights) != len(builtins) || weights["TaintToleration"] != 3 || weights["NodeName"] != 0 {
		t.Errorf("plugins %v", weights)
	}
	if p := out.Profiles[0].Plugins.MultiPoint.Enabled; p[2].Name != "NodeName" || p[3].Name != "NodeUnschedulable" {
		t.Errorf("plugins %v, want Kubernetes' order", p)
	}
	args := map[string]string{}
	for _, c := range out.Profiles[0].PluginConfig {
		args[c.Name] = string(c.Args.Raw)
	}
	for name, want := range map[string]string{
		"DefaultPreemption": `{"kind":"DefaultPreemptionArgs","apiVersion":"kubescheduler.config.k8s.io/v1",` +
			`"minCandidateNodesPercentage":10,"minCandidateNodesAbsolute":100}`,
		"InterPodAffinity": `{"kind":"InterPodAffinityArgs","apiVersion":"kubescheduler.config.k8s.io/v1",` +
			`"hardPodAffinityWeight":1,"ignorePreferredTermsOfExistingPods":false}`,
		"NodeResourcesFit": `{"kind":"NodeResourcesFitArgs","apiVersion":"kubescheduler.config.k8s.io/v1",` +
			`"scoringStrategy":` +
			`{"type":"LeastAllocated","resources":[{"name":"cpu","weight":1},{"name":"memory","weight":1}]}}`,
		"PodTopologySpread": `{"kind":"PodTopologySpreadArgs","apiVersion":"kubescheduler.config.k8s.io/v1",` +
			`"defaultingType":"System"}`,
		"VolumeBinding": `{"kind":"VolumeBindingArgs","apiVersion":"kubescheduler.config.k8s.io/v1",` +
			`"bindTimeoutSeconds":600,"shape":[{"utilization":0,"score":10},{"utilization":100,"score":0}]}`,
	} {
		if args[name] != want {
			t.Errorf("%s: %s, want %s", name, args[name], want)
		}
	}
	if len(args) != len(arguments) {
		t.Errorf("arguments of %d plugins", len(args))
	}
	if again := effective(t, out); !reflect.DeepEqual(again, out) {
		t.Errorf("filled in again it is %s", text(t, again))
	}
}

// TestEffectiveKeeps checks that Effective keeps the values in the configuration, and adds no
// arguments of disabled plugins.
func TestEffectiveKeeps(t *testing.T) {
	c := &configv1.KubeSchedulerConfiguration{PodMaxBackoffSeconds: ptr.To(int64(60)),
		Profiles: []configv1.KubeSchedulerProfile{
			{
				SchedulerName: ptr.To("own"),
				Plugins: &configv1.Plugins{MultiPoint: configv1.PluginSet{
					Disabled: []configv1.Plugin{{Name: "DefaultPreemption"}},
					Enabled:  []configv1.Plugin{{Name: "ImageLocality", Weight: ptr.To(int32(9))}},
				}},
				PluginConfig: []configv1.PluginConfig{
					{Name: "VolumeBinding", Args: runtime.RawExtension{Raw: []byte(`{"bindTimeoutSeconds":30}`)}}},
			}, {},
		}}
	before := c.DeepCopy()
	out := effective(t, c)
	if !reflect.DeepEqual(c, before) {
		t.Error("the given configuration was changed")
	}
	own := out.Profiles[0]
	for _, p := range own.Plugins.MultiPoint.Enabled {
		if p.Name == "DefaultPreemption" || p.Name == "ImageLocality" && *p.Weight != 9 {
			t.Errorf("%s is enabled, with the weight %d", p.Name, *p.Weight)
		}
	}
	for _, p := range own.PluginConfig {
		if p.Name == "DefaultPreemption" || p.Name == "VolumeBinding" &&
			string(p.Args.Raw) != `{"kind":"VolumeBindingArgs",`+
				`"apiVersion":"kubescheduler.config.k8s.io/v1","bindTimeoutSeconds":30,`+
				`"shape":[{"utilization":0,"score":10},{"utilization":100,"score":0}]}` {
			t.Errorf("%s: %s", p.Name, p.Args.Raw)
		}
	}
	if *own.SchedulerName != "own" || *out.Profiles[1].SchedulerName != "default-scheduler" ||
		*out.PodMaxBackoffSeconds != 60 {
		t.Errorf("%s", text(t, out))
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
