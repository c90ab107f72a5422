// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package features has the feature gates of Kubernetes, and determines which of them are enabled in
// a process: those that its version of Kubernetes enables by default, changed by the flags of the
// API server or by the configuration of the kubelet. A server that emulates Kubernetes 1.36 has the
// features and defaults of that release.
//
// Most gates cannot be changed, because the code of the server always has the feature or never has
// it. Two kinds of gates can be changed: those that the server's code checks by Options.Enabled, and those
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

	"keelson.dev/keelson/pkg/release"
)

// Features that Keelson's code checks.
const (
	// ClusterTrustBundle adds bundles of trusted certificates, and a controller that publishes one.
	ClusterTrustBundle = "ClusterTrustBundle"
	// ComponentFlagz enables the page /flagz, which shows the server's flags.
	ComponentFlagz = "ComponentFlagz"
	// ComponentStatusz enables the page /statusz, which shows the server's state.
	ComponentStatusz = "ComponentStatusz"
	// DRADeviceTaintRules lets administrators taint devices.
	DRADeviceTaintRules = "DRADeviceTaintRules"
	// GenericWorkload adds workloads, pod groups and the scheduling groups of pods.
	GenericWorkload = "GenericWorkload"
	// PersistentVolumeClaimUnusedSinceTime adds a condition to claims that no pod uses.
	PersistentVolumeClaimUnusedSinceTime = "PersistentVolumeClaimUnusedSinceTime"
	// PodCertificateRequest lets kubelets request certificates for pods.
	PodCertificateRequest = "PodCertificateRequest"
	// StorageCapacityScoring makes the scheduler prefer nodes by their free storage.
	StorageCapacityScoring = "StorageCapacityScoring"
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
// default; whether users can turn it on and off ("locked": neither in Kubernetes nor here; "fixed":
// only in Kubernetes; "turns": in both); and the features that it requires.
//
//go:embed features.txt
var list string

// list136 has the features of list that differ in Kubernetes 1.36: the name, the stage, and 1 if the
// feature is enabled by default. A line with only a name is a feature that 1.36 does not have. In
// 1.36, users can turn all features of the other lines on and off.
//
//go:embed features136.txt
var list136 string

// feature is a line of list.
type feature struct {
	name          string
	own           level
	before        *level // stage and default in Kubernetes 1.36, if they differ
	locked, turns bool
	needs         []featuregate.Feature
}

// level has the stage of a feature in one release, and whether the feature is on by default. The
// stage is none if the release does not have the feature.
type level struct {
	stage string
	on    bool
}

const none = "NONE"

// after136 is the minor version of the release after Kubernetes 1.36.
const after136 = 37

// at returns the stage and the default of the feature in an emulated release.
func (f *feature) at(e release.Emulated) level {
	if f.before != nil && e.Before(after136) {
		return *f.before
	}
	return f.own
}

func newLevel(stage, on string) level {
	if stage == "GA" {
		stage = "" // Kubernetes' constant for GA is an empty string
	}
	return level{stage, on == "1"}
}

// all returns all features, by name. Callers must not change the map.
var all = sync.OnceValues(func() (map[string]feature, error) {
	out := map[string]feature{}
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) < 4 {
			return nil, fmt.Errorf("list of features: invalid line %q", line)
		}
		f := feature{name: words[0], own: newLevel(words[1], words[2]), locked: words[3] == "locked",
			turns: words[3] == "turns"}
		for _, need := range words[4:] {
			f.needs = append(f.needs, featuregate.Feature(need))
		}
		out[f.name] = f
	}
	for line := range strings.Lines(list136) {
		words := append(strings.Fields(line), none, "0")
		f, ok := out[words[0]]
		if !ok {
			return nil, fmt.Errorf("list of features of 1.36: unknown feature %q", words[0])
		}
		before := newLevel(words[1], words[2])
		f.before = &before
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
		own := f.own.spec(version.MajorMinor(0, 0))
		own.LockToDefault = f.locked
		if f.before != nil {
			own.Version = ownRelease()
			if f.before.stage != none {
				specs[featuregate.Feature(name)] = featuregate.VersionedSpecs{f.before.spec(version.MajorMinor(0, 0))}
			}
		}
		specs[featuregate.Feature(name)] = append(specs[featuregate.Feature(name)], own)
		if len(f.needs) > 0 {
			needs[featuregate.Feature(name)] = f.needs
		}
	}
	g := featuregate.NewVersionedFeatureGate(ownRelease())
	if err := g.AddVersioned(specs); err != nil {
		return nil, fmt.Errorf("list of features: %w", err)
	}
	if err := g.AddDependencies(needs); err != nil {
		return nil, fmt.Errorf("list of features: %w", err)
	}
	return g, nil
}

// spec returns l in the form that a feature gate needs. from is the first release with this stage
// and default.
func (l level) spec(from *version.Version) featuregate.FeatureSpec {
	spec := featuregate.FeatureSpec{Default: l.on, PreRelease: featuregate.Alpha, Version: from}
	switch l.stage {
	case string(featuregate.Beta):
		spec.PreRelease = featuregate.Beta
	case string(featuregate.GA):
		spec.PreRelease = featuregate.GA
	case string(featuregate.Deprecated):
		spec.PreRelease = featuregate.Deprecated
	}
	return spec
}

// Turned has the features that differ from their defaults. The value is true if the feature is
// enabled.
type Turned map[string]bool

// Enabled reports whether a feature is enabled. Unknown features are not enabled.
func (o *Options) Enabled(name string) bool {
	if on, ok := o.Turned[name]; ok {
		return on
	}
	known, err := all()
	if err != nil {
		return false
	}
	f := known[name]
	return f.at(o.Emulated).on
}

// Register registers the metric kubernetes_feature_enabled. Unknown features in o are ignored.
func Register(r prometheus.Registerer, o *Options) error {
	known, err := all()
	if err != nil {
		return err
	}
	enabled := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_feature_enabled",
		Help: "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
	}, []string{"name", "stage"})
	for name, f := range known {
		l := f.at(o.Emulated)
		if l.stage == none {
			continue
		}
		gauge := enabled.WithLabelValues(name, l.stage)
		if o.Enabled(name) {
			gauge.Set(1)
		}
	}
	if err := r.Register(enabled); err != nil {
		return fmt.Errorf("metrics of features: %w", err)
	}
	return nil
}
