// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package features has the feature gates of Kubernetes and which of them are enabled in a process:
// those enabled by default in its version of Kubernetes, changed by the API server's flags or the
// kubelet's configuration.
//
// Most gates cannot be changed, because the server has the feature or does not have it. Two kinds
// of gates can be changed: those that the server's code checks by Turned, and those of other
// components, because all components often get the same --feature-gates. The package has no global
// state: a server's features are part of its configuration.
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

// The features that the server's code checks.
const (
	// ComponentFlagz serves the server's flags at /flagz.
	ComponentFlagz = "ComponentFlagz"
	// ComponentStatusz serves the server's state at /statusz.
	ComponentStatusz = "ComponentStatusz"
	// StorageVersionAPI publishes in which versions servers store objects.
	StorageVersionAPI = "StorageVersionAPI"
	// StorageVersionHash adds the hash of the stored kind to discovery.
	StorageVersionHash = "StorageVersionHash"
	// StorageVersionMigrator rewrites all objects of a resource on request.
	StorageVersionMigrator = "StorageVersionMigrator"
	// WatchList lets watches send the current objects first.
	WatchList = "WatchList"
)

// The gates that stand for all alpha and all beta features.
const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"
)

// list has one line per feature: its name, its stage, 1 if it is enabled by default, "locked" if
// Kubernetes does not allow a change, "turns" if this server allows one and "fixed" if it does not,
// and the features that it requires.
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

// all returns the features by name. Callers must not change the map.
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
			f.stage = "" // Kubernetes writes this stage as an empty string
		}
		for _, need := range words[4:] {
			f.needs = append(f.needs, featuregate.Feature(need))
		}
		out[f.name] = f
	}
	return out, nil
})

// gate returns all features with their defaults.
func gate() (featuregate.MutableVersionedFeatureGate, error) {
	known, err := all()
	if err != nil {
		return nil, err
	}
	specs, needs := map[featuregate.Feature]featuregate.VersionedSpecs{}, map[featuregate.Feature][]featuregate.Feature{}
	for name, f := range known {
		if name == allAlpha || name == allBeta {
			continue // every feature gate has these two already
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

// Register registers kubernetes_feature_enabled. t may have names of features that do not exist.
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
