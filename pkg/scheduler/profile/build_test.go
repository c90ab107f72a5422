// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/scheduling"
)

// TestExtraPlugin checks that a plugin that is not built in runs at each extension point that it
// implements and at which the configuration enables it.
func TestExtraPlugin(t *testing.T) {
	filter := func(scheduling.View, *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
		return scheduling.Filter{}, nil
	}
	score := func(scheduling.View, *scheduling.Pod) scheduling.Scorer { return scheduling.Scorer{} }
	all := func(name string) Factory {
		return func([]byte) (scheduling.Plugin, error) {
			return scheduling.Plugin{
				Name: name,
				Filter: &scheduling.FilterPoint{
					Scope: scheduling.CellScope, Events: scheduling.PodChanged, Compile: filter,
				},
				Score: &scheduling.ScorePoint{Scope: scheduling.NodeScope, Compile: score},
				Gate:  func(*v1.Pod) *scheduling.Status { return nil },
			}, nil
		}
	}
	unfinished := func([]byte) (scheduling.Plugin, error) {
		return scheduling.Plugin{Name: "Extra", Score: &scheduling.ScorePoint{}}, nil
	}
	enabled := configv1.PluginSet{Enabled: []configv1.Plugin{{Name: "Extra"}}}
	for name, tc := range map[string]struct {
		plugins              configv1.Plugins
		extra                Registry
		filter, score, gates int // expected numbers of plugins, in addition to the default plugins
		err                  string
	}{
		"all points":      {configv1.Plugins{MultiPoint: enabled}, Registry{"Extra": all("Extra")}, 1, 1, 1, ""},
		"filter alone":    {configv1.Plugins{Filter: enabled}, Registry{"Extra": all("Extra")}, 1, 0, 0, ""},
		"not implemented": {configv1.Plugins{QueueSort: enabled}, Registry{"Extra": all("Extra")}, 0, 0, 0, ""},
		"not registered":  {configv1.Plugins{Filter: enabled}, nil, 0, 0, 0, "is not known"},
		"another name":    {configv1.Plugins{Filter: enabled}, Registry{"Extra": all("Other")}, 0, 0, 0, `name "Other"`},
		"no function":     {configv1.Plugins{Score: enabled}, Registry{"Extra": unfinished}, 0, 0, 0, "no function Compile"},
		"built in":        {configv1.Plugins{}, Registry{"NodeName": all("NodeName")}, 0, 0, 0, "is built in"},
	} {
		t.Run(name, func(t *testing.T) {
			defaults, err := Build(&configv1.KubeSchedulerConfiguration{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			set, err := Build(&configv1.KubeSchedulerConfiguration{
				Profiles: []configv1.KubeSchedulerProfile{{Plugins: &tc.plugins}},
			}, tc.extra)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			was, is := defaults.Profiles[v1.DefaultSchedulerName], set.Profiles[v1.DefaultSchedulerName]
			filter, score := len(is.CellFilters)-len(was.CellFilters), len(is.NodeScores)-len(was.NodeScores)
			gates := len(is.Gates) - len(was.Gates)
			if filter != tc.filter || score != tc.score || gates != tc.gates {
				t.Errorf("%d filters, %d scores and %d gates more than by default; want %d, %d and %d",
					filter, score, gates, tc.filter, tc.score, tc.gates)
			}
		})
	}
}

// TestDisableScore checks that only the scorer of the plugin is removed.
func TestDisableScore(t *testing.T) {
	count := func(s *Set, plugin string) (filters, scores, others int) {
		p := s.Profiles[v1.DefaultSchedulerName]
		for _, f := range p.CellFilters {
			if f.Plugin == plugin {
				filters++
			}
		}
		for _, score := range slices.Concat(p.NodeScores, p.CellScores) {
			if score.Plugin == plugin {
				scores++
			} else {
				others++
			}
		}
		return filters, scores, others
	}
	set, err := Build(&configv1.KubeSchedulerConfiguration{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	filters, scores, others := count(set, "VolumeBinding")
	set.DisableScore("VolumeBinding")
	if f, s, o := count(set, "VolumeBinding"); filters != 1 || scores != 1 || f != 1 || s != 0 || o != others {
		t.Errorf("filters %d, then %d; scores %d, then %d; other scores %d, then %d", filters, f, scores, s, others, o)
	}
}

// TestArguments checks that null in the arguments of plugins means the default, and that values out
// of range are errors.
func TestArguments(t *testing.T) {
	for name, c := range map[string]struct{ plugin, args, err string }{
		"null timeouts": {"DynamicResources", `{"filterTimeout":null,"bindingTimeout":null}`, ""},
		"null weight":   {"InterPodAffinity", `{"hardPodAffinityWeight":null}`, ""},
		"null candidates": {"DefaultPreemption",
			`{"minCandidateNodesPercentage":null,"minCandidateNodesAbsolute":null}`, ""},
		"null bind timeout": {"VolumeBinding", `{"bindTimeoutSeconds":null}`, ""},
		"high weight": {"InterPodAffinity", `{"hardPodAffinityWeight":101}`,
			"hardPodAffinityWeight: 101 is not in the range 0 to 100"},
		"high percentage": {"DefaultPreemption", `{"minCandidateNodesPercentage":101}`,
			"minCandidateNodesPercentage: 101 is not in the range 0 to 100"},
		"negative candidates": {"DefaultPreemption", `{"minCandidateNodesAbsolute":-1}`,
			"minCandidateNodesAbsolute: -1 is negative"},
		"no candidates": {"DefaultPreemption", `{"minCandidateNodesPercentage":0,"minCandidateNodesAbsolute":0}`,
			"minCandidateNodesPercentage and minCandidateNodesAbsolute are both 0"},
	} {
		t.Run(name, func(t *testing.T) {
			build := func(args string) (*configv1.KubeSchedulerConfiguration, error) {
				p := configv1.KubeSchedulerProfile{PluginConfig: []configv1.PluginConfig{
					{Name: c.plugin, Args: runtime.RawExtension{Raw: []byte(args)}}}}
				config := &configv1.KubeSchedulerConfiguration{Profiles: []configv1.KubeSchedulerProfile{p}}
				set, err := Build(config, nil)
				if err != nil {
					return nil, err
				}
				return Effective(config, set)
			}
			got, err := build(c.args)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want, err := build("{}"); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		})
	}
}
