// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package features tells which features of Kubernetes there are, and which of them are
// enabled in a server: those that are so by default in the version that this server is
// like, but for what its flags say.
//
// Most features cannot be turned: the server has them, or has them not. Those that can
// are of two kinds: what is decided elsewhere in the server by Turned, and what is the business of
// other components, which are commonly given the same --feature-gates. Nothing in here
// is global: a server's features are part of its configuration.
package features

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
)

// The features by which a server decides something.
const (
	// ComponentFlagz has the server tell its flags.
	ComponentFlagz = "ComponentFlagz"
	// ComponentStatusz has the server tell its state.
	ComponentStatusz = "ComponentStatusz"
	// StorageVersionAPI has servers tell in which versions they store objects.
	StorageVersionAPI = "StorageVersionAPI"
	// StorageVersionHash has discovery tell what objects are stored as.
	StorageVersionHash = "StorageVersionHash"
	// StorageVersionMigrator has all objects of a resource written anew when somebody asks.
	StorageVersionMigrator = "StorageVersionMigrator"
	// WatchList has watches send the present objects first to who asks for them.
	WatchList = "WatchList"
)

// The gates that stand for others.
const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"
)

// list has a line for each feature: its name, its stage, 1 if it is enabled by default,
// "locked" if Kubernetes has it so for good, "turns" if this server can have it
// otherwise and "fixed" if it cannot, and the features without which it cannot be enabled.
//
//go:embed features.txt
var list string

// feature is a line of list.
type feature struct {
	name, stage   string
	on            bool
	locked, turns bool
	needs         []featuregate.Feature
}

// all are the features by name; nobody changes them.
var all = sync.OnceValues(func() (map[string]feature, error) {
	out := map[string]feature{}
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) < 4 {
			return nil, fmt.Errorf("list of features: %q is none", line)
		}
		f := feature{name: words[0], stage: words[1], on: words[2] == "1", locked: words[3] == "locked", turns: words[3] == "turns"}
		if f.stage == "GA" {
			f.stage = "" // as Kubernetes writes it
		}
		for _, need := range words[4:] {
			f.needs = append(f.needs, featuregate.Feature(need))
		}
		out[f.name] = f
	}
	return out, nil
})

// gate returns all features as they are by default.
func gate() (featuregate.MutableVersionedFeatureGate, error) {
	known, err := all()
	if err != nil {
		return nil, err
	}
	specs, needs := map[featuregate.Feature]featuregate.VersionedSpecs{}, map[featuregate.Feature][]featuregate.Feature{}
	for name, f := range known {
		if name == allAlpha || name == allBeta {
			continue // each gate has these
		}
		spec := featuregate.FeatureSpec{Default: f.on, LockToDefault: f.locked, PreRelease: featuregate.Alpha, Version: version.MajorMinor(0, 0)}
		switch f.stage {
		case string(featuregate.Beta):
			spec.PreRelease = featuregate.Beta
		case string(featuregate.GA):
			spec.PreRelease = featuregate.GA
		case string(featuregate.Deprecated):
			spec.PreRelease = featuregate.Deprecated
		}
		specs[featuregate.Feature(name)] = featuregate.VersionedSpecs{spec}
		if len(f.needs) > 0 {
			needs[featuregate.Feature(name)] = f.needs
		}
	}
	g := featuregate.NewVersionedFeatureGate(release())
	if err := g.AddVersioned(specs); err != nil {
		return nil, fmt.Errorf("list of features: %w", err)
	}
	if err := g.AddDependencies(needs); err != nil {
		return nil, fmt.Errorf("list of features: %w", err)
	}
	return g, nil
}

// Turned has the features that are not as they are by default, and whether they are enabled.
type Turned map[string]bool

// Enabled tells whether a feature is enabled; one that there is not is not.
func (t Turned) Enabled(name string) bool {
	if on, ok := t[name]; ok {
		return on
	}
	known, err := all()
	return err == nil && known[name].on
}

// Metric returns kubernetes_feature_enabled.
func Metric(t Turned) (prometheus.Collector, error) {
	known, err := all()
	if err != nil {
		return nil, err
	}
	enabled := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_feature_enabled",
		Help: "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
	}, []string{"name", "stage"})
	for name, f := range known {
		on, turned := t[name]
		if !turned {
			on = f.on
		}
		gauge := enabled.WithLabelValues(name, f.stage)
		if on {
			gauge.Set(1)
		}
	}
	return enabled, nil
}
