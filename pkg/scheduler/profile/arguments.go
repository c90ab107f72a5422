// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/scheduler/plugins/dynamicresources"
	"keelson.dev/keelson/pkg/scheduler/plugins/interpodaffinity"
	"keelson.dev/keelson/pkg/scheduler/plugins/nodeaffinity"
	"keelson.dev/keelson/pkg/scheduler/plugins/noderesources"
	"keelson.dev/keelson/pkg/scheduler/plugins/podtopologyspread"
	"keelson.dev/keelson/pkg/scheduler/plugins/volumebinding"
)

// bindTimeout is how long the scheduler waits by default until a pod's volumes are bound.
const bindTimeout = 10 * time.Minute

// arguments has a function for each plugin that has arguments. The function decodes the JSON
// arguments into an object that already has the default values.
var arguments = map[string]func(args []byte) (runtime.Object, error){
	PreemptionName:             object(preemptionArgs),
	dynamicresources.Name:      object(deviceArgs),
	interpodaffinity.Name:      object(podAffinityArgs),
	nodeaffinity.Name:          object(affinityArgs),
	noderesources.BalancedName: object(balancedArgs),
	noderesources.FitName:      object(fitArgs),
	podtopologyspread.Name:     object(spreadArgs),
	volumebinding.Name:         object(bindingArgs),
}

func object[T runtime.Object](read func([]byte) (T, error)) func([]byte) (runtime.Object, error) {
	return func(args []byte) (runtime.Object, error) { return read(args) }
}

// decode decodes the JSON arguments of a plugin into a struct that already has the default values.
func decode(args []byte, into any) error {
	if len(args) == 0 {
		return nil
	}
	return yaml.UnmarshalStrict(args, into)
}

func fitArgs(args []byte) (*configv1.NodeResourcesFitArgs, error) {
	a := &configv1.NodeResourcesFitArgs{ScoringStrategy: &configv1.ScoringStrategy{Type: configv1.LeastAllocated}}
	err := decode(args, a)
	if a.ScoringStrategy == nil {
		a.ScoringStrategy = &configv1.ScoringStrategy{Type: configv1.LeastAllocated}
	}
	a.ScoringStrategy.Resources = weighted(a.ScoringStrategy.Resources)
	return a, err
}

func balancedArgs(args []byte) (*configv1.NodeResourcesBalancedAllocationArgs, error) {
	a := &configv1.NodeResourcesBalancedAllocationArgs{}
	err := decode(args, a)
	a.Resources = weighted(a.Resources)
	return a, err
}

// weighted returns the resources with weight 1 where it is missing, or the default resources if
// specs is empty.
func weighted(specs []configv1.ResourceSpec) []configv1.ResourceSpec {
	var out []configv1.ResourceSpec
	for _, s := range specs {
		out = append(out, configv1.ResourceSpec{Name: s.Name, Weight: max(s.Weight, 1)})
	}
	if len(out) > 0 {
		return out
	}
	for _, r := range noderesources.DefaultResources() {
		out = append(out, configv1.ResourceSpec{Name: string(r.Name), Weight: r.Weight})
	}
	return out
}

func affinityArgs(args []byte) (*configv1.NodeAffinityArgs, error) {
	a := &configv1.NodeAffinityArgs{}
	return a, decode(args, a)
}

func bindingArgs(args []byte) (*configv1.VolumeBindingArgs, error) {
	a := &configv1.VolumeBindingArgs{}
	err := decode(args, a)
	defaulted(&a.BindTimeoutSeconds, int64(bindTimeout/time.Second))
	if len(a.Shape) == 0 {
		a.Shape = []configv1.UtilizationShapePoint{{Utilization: 0, Score: 10}, {Utilization: 100, Score: 0}}
	}
	return a, err
}

// defaulted sets a field that has no value, or the value null, to the default.
func defaulted[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func deviceArgs(args []byte) (*configv1.DynamicResourcesArgs, error) {
	a := &configv1.DynamicResourcesArgs{}
	err := decode(args, a)
	defaulted(&a.FilterTimeout, metav1.Duration{Duration: configv1.DynamicResourcesFilterTimeoutDefault})
	defaulted(&a.BindingTimeout, metav1.Duration{Duration: configv1.DynamicResourcesBindingTimeoutDefault})
	return a, err
}

func spreadArgs(args []byte) (*configv1.PodTopologySpreadArgs, error) {
	a := &configv1.PodTopologySpreadArgs{DefaultingType: configv1.SystemDefaulting}
	return a, decode(args, a)
}

func podAffinityArgs(args []byte) (*configv1.InterPodAffinityArgs, error) {
	a := &configv1.InterPodAffinityArgs{}
	err := decode(args, a)
	defaulted(&a.HardPodAffinityWeight, 1)
	return a, err
}

func preemptionArgs(args []byte) (*configv1.DefaultPreemptionArgs, error) {
	a := &configv1.DefaultPreemptionArgs{}
	err := decode(args, a)
	defaulted(&a.MinCandidateNodesPercentage, 10)
	defaulted(&a.MinCandidateNodesAbsolute, 100)
	return a, err
}
