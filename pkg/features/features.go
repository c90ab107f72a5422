// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package features has the feature gates of Kubernetes, and determines which of them are enabled in
// a process: those that its version of Kubernetes enables by default, changed by the flags of the
// API server or by the configuration of the kubelet.
//
// Most gates cannot be changed, because the code of the server always has the feature or never has
// it. Two kinds of gates can be changed: those that the server's code checks by Turned, and those
// of other components, because all components often get the same --feature-gates. The package has
// no global state: a server's features are part of its configuration.
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

// Features that the server's code checks.
const (
	// ComponentFlagz enables the page /flagz, which shows the server's flags.
	ComponentFlagz = "ComponentFlagz"
	// ComponentStatusz enables the page /statusz, which shows the server's state.
	ComponentStatusz = "ComponentStatusz"
	// StorageVersionAPI makes servers publish the versions in which they store objects.
	StorageVersionAPI = "StorageVersionAPI"
	// StorageVersionHash adds to discovery a hash of the kind that is stored for each resource.
	StorageVersionHash = "StorageVersionHash"
	// StorageVersionMigrator rewrites all stored objects of a resource if a client requests it.
	StorageVersionMigrator = "StorageVersionMigrator"
	// WatchList allows watches to begin with the current objects.
	WatchList = "WatchList"
)

// Gates that change all alpha features and all beta features.
const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"
)

// list has one line per feature, with these fields: its name; its stage; 1 if it is enabled by
// default; whether users can turn it on and off ("locked": not in Kubernetes either; "fixed": in
// Kubernetes, but not here; "turns": here too); and the features that it requires.
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

// all returns all features, by name. Callers must not change the map.
var all = sync.OnceValues(func() (map[string]feature, error) {
	out := map[string]feature{}
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) < 4 {
			return nil, fmt.Errorf("list of features: invalid line %q", line)
		}
		f := feature{name: words[0], stage: words[1], on: words[2] == "1", locked: words[3] == "locked",
			turns: words[3] == "turns"}
		if f.stage == "GA" {
			f.stage = "" // in Kubernetes, an empty string stands for this stage
		}
		for _, need := range words[4:] {
			f.needs = append(f.needs, featuregate.Feature(need))
		}
		out[f.name] = f
	}
	return out, nil
})

// gate returns a feature gate with all features and their defaults.
func gate() (featuregate.MutableVersionedFeatureGate, error) {
	known, err := all()
	if err != nil {
		return nil, err
	}
	specs, needs := map[featuregate.Feature]featuregate.VersionedSpecs{}, map[featuregate.Feature][]featuregate.Feature{}
	for name, f := range known {
		if name == allAlpha || name == allBeta {
			continue // every feature gate already has AllAlpha and AllBeta
		}
		spec := featuregate.FeatureSpec{Default: f.on, LockToDefault: f.locked, PreRelease: featuregate.Alpha,
			Version: version.MajorMinor(0, 0)}
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

// Turned has the features that differ from their defaults. The value is true if the feature is
// enabled.
type Turned map[string]bool

// Enabled reports whether a feature is enabled. Unknown features are not enabled.
func (t Turned) Enabled(name string) bool {
	if on, ok := t[name]; ok {
		return on
	}
	known, err := all()
	return err == nil && known[name].on
}

// Register registers the metric kubernetes_feature_enabled. Unknown features in t are ignored.
func Register(r prometheus.Registerer, t Turned) error {
	known, err := all()
	if err != nil {
		return err
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
	if err := r.Register(enabled); err != nil {
		return fmt.Errorf("metrics of features: %w", err)
	}
	return nil
}
