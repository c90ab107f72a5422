// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// Effective returns a copy of the configuration with the defaults that Build uses filled in: the
// default profile, the default plugins with their weights, and the plugins' arguments.
func Effective(c *configv1.KubeSchedulerConfiguration, s *Set) (*configv1.KubeSchedulerConfiguration, error) {
	out := c.DeepCopy()
	out.SetGroupVersionKind(configv1.SchemeGroupVersion.WithKind("KubeSchedulerConfiguration"))
	first, most := int64(s.InitialBackoff/time.Second), int64(s.MaxBackoff/time.Second)
	out.PodInitialBackoffSeconds, out.PodMaxBackoffSeconds = &first, &most
	all := int32(100) // Keelson always scores 100 percent of the nodes
	out.PercentageOfNodesToScore = &all
	if len(out.Profiles) == 0 {
		out.Profiles = []configv1.KubeSchedulerProfile{{}}
	}
	for i := range out.Profiles {
		if err := complete(&out.Profiles[i]); err != nil {
			return nil, fmt.Errorf("profiles[%d]: %w", i, err)
		}
	}
	return out, nil
}

// complete fills in the default plugins and arguments of a profile.
func complete(p *configv1.KubeSchedulerProfile) error {
	if p.SchedulerName == nil {
		name := v1.DefaultSchedulerName
		p.SchedulerName = &name
	}
	p.PercentageOfNodesToScore = nil
	chosen := choose(p.Plugins)
	if p.Plugins == nil {
		p.Plugins = &configv1.Plugins{}
	}
	multi := everywhere(p.Plugins)
	p.Plugins.MultiPoint.Enabled = nil
	for _, name := range multi.names {
		weight := int32(multi.weights[name])
		p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled, configv1.Plugin{Name: name, Weight: &weight})
	}
	given := map[string][]byte{}
	for _, c := range p.PluginConfig {
		given[c.Name] = c.Args.Raw
	}
	names := chosen.all()
	for _, name := range slices.Sorted(maps.Keys(arguments)) {
		if !slices.Contains(names, name) {
			continue
		}
		raw, err := argumentsOf(name, given[name])
		if err != nil {
			return fmt.Errorf("plugin %s: %w", name, err)
		}
		i := slices.IndexFunc(p.PluginConfig, func(c configv1.PluginConfig) bool { return c.Name == name })
		if i < 0 {
			i = len(p.PluginConfig)
			p.PluginConfig = append(p.PluginConfig, configv1.PluginConfig{Name: name})
		}
		p.PluginConfig[i].Args = runtime.RawExtension{Raw: raw}
	}
	return nil
}

// argumentsOf returns a plugin's arguments as JSON, with defaults filled in.
func argumentsOf(name string, given []byte) ([]byte, error) {
	a, err := arguments[name](given)
	if err != nil {
		return nil, err
	}
	a.GetObjectKind().SetGroupVersionKind(configv1.SchemeGroupVersion.WithKind(name + "Args"))
	return json.Marshal(a)
}
