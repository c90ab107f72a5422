// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"

	"keelson.dev/keelson/pkg/daemon"
)

// oldest is how many minor releases the emulated release, or the oldest compatible one, may be
// older than Kubernetes' server.
const oldest = 3

// release returns the Kubernetes release of this server.
func release() *version.Version { return version.MustParse(daemon.Major + "." + daemon.Minor) }

// effective returns the versions of a server without flags for them.
func effective() compatibility.MutableEffectiveVersion {
	floor := release().SubtractMinor(oldest)
	return compatibility.NewEffectiveVersion(release(), false, floor, floor)
}

// Options are the settings of features and of emulated releases. The zero value has the defaults.
type Options struct {
	// Turned has the features whose values differ from their defaults.
	Turned Turned

	// flags has the values of flags. It is nil if AddFlags was not called.
	flags *flags
}

// flags has the values of the flags for features and releases.
type flags struct {
	registry compatibility.ComponentGlobalsRegistry
	version  compatibility.EffectiveVersion
	gate     featuregate.FeatureGate

	forward, forwardAPIs bool
}

// AddFlags adds the flags for features and releases to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) error {
	g, err := gate()
	if err != nil {
		return err
	}
	v := effective()
	o.flags = &flags{registry: compatibility.NewComponentGlobalsRegistry(), version: v, gate: g}
	if err := o.flags.registry.Register(compatibility.DefaultKubeComponent, v, g); err != nil {
		return fmt.Errorf("features: %w", err)
	}
	o.flags.registry.AddFlags(fs)
	fs.BoolVar(&o.flags.forward, "emulation-forward-compatible", false,
		"with an emulated version: serve the APIs of later versions that are stable; no other version than "+
			"the server's own can be emulated")
	fs.BoolVar(&o.flags.forwardAPIs, "runtime-config-emulation-forward-compatible", false,
		"with an emulated version: let --runtime-config name APIs of later versions; no other version than "+
			"the server's own can be emulated")
	return nil
}

// Note sets Turned from the flags. It is called after the flags have been parsed.
func (o *Options) Note() error {
	if err := o.flags.registry.Set(); err != nil {
		return err // returned unwrapped, because it has Kubernetes' text
	}
	known, err := all()
	if err != nil {
		return err
	}
	o.Turned = nil
	for name, f := range known {
		if on := o.flags.gate.Enabled(featuregate.Feature(name)); on != f.on {
			if o.Turned == nil {
				o.Turned = Turned{}
			}
			o.Turned[name] = on
		}
	}
	return nil
}

// Validate calls add for settings that are invalid or that this server does not support.
func (o *Options) Validate(add func(format string, args ...any)) {
	if f := o.flags; f != nil {
		f.validate(add)
	}
	known, err := all()
	if err != nil {
		add("%w", err)
		return
	}
	var fixed []string
	for _, name := range slices.Sorted(maps.Keys(o.Turned)) {
		if known[name].turns {
			continue
		}
		text := fmt.Sprintf("%s=%t", name, o.Turned[name])
		if name == allAlpha || name == allBeta {
			fixed = []string{text} // report only AllAlpha or AllBeta, and not each feature that it changes
			break
		}
		fixed = append(fixed, text)
	}
	if len(fixed) > 0 {
		add("--feature-gates: %s cannot be had: this server has these features as they are by default",
			strings.Join(fixed, ","))
	}
}

// validate calls add for each emulated or compatible release that is not supported.
func (f *flags) validate(add func(format string, args ...any)) {
	errs := f.registry.Validate()
	own := effective()
	switch emulated := f.version.EmulationVersion(); {
	case len(errs) > 0:
	case !emulated.EqualTo(own.EmulationVersion()):
		errs = append(errs, fmt.Errorf("--emulated-version: this server cannot emulate %s, only %s", emulated,
			own.EmulationVersion()))
	case !f.version.MinCompatibilityVersion().EqualTo(own.MinCompatibilityVersion()):
		errs = append(errs, fmt.Errorf(
			"--min-compatibility-version: this server cannot be compatible with %s, only with %s",
			f.version.MinCompatibilityVersion(), own.MinCompatibilityVersion()))
	}
	if f.version.EmulationVersion().EqualTo(own.EmulationVersion()) {
		if f.forward {
			errs = append(errs, errors.New("ServerRunOptions.EmulationForwardCompatible cannot be set to "+
				"true if the emulation version is the same as the binary version"))
		}
		if f.forwardAPIs {
			errs = append(errs, errors.New("ServerRunOptions.RuntimeConfigEmulationForwardCompatible cannot "+
				"be set to true if the emulation version is the same as the binary version"))
		}
	}
	for _, err := range errs {
		add("%w", err)
	}
}
