// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"

	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/release"
)

// oldest is how many minor releases back a server of Kubernetes can emulate a release, or be
// compatible with one. This server supports less.
const oldest = 3

// ownRelease returns the Kubernetes release of this server.
func ownRelease() *version.Version { return version.MustParse(daemon.Major + "." + daemon.Minor) }

// Emulatable returns the releases that the flag --emulated-version accepts, in the form "1.36".
func Emulatable() []string {
	own := ownRelease()
	return []string{own.SubtractMinor(1).String(), own.String()}
}

// effective returns the emulated and the compatible release of a server without flags for these.
func effective() compatibility.MutableEffectiveVersion {
	floor := ownRelease().SubtractMinor(oldest)
	return compatibility.NewEffectiveVersion(ownRelease(), false, floor, floor)
}

// Options are the settings of features and of the emulated release. The zero value has the defaults.
type Options struct {
	// Emulated is the Kubernetes release whose APIs, features and defaults the server has.
	Emulated release.Emulated
	// Turned has the features whose values differ from their defaults in the emulated release.
	Turned Turned

	// flags has the values of flags. It is nil if no flags were added.
	flags *flags
}

// flags has the values of the flags for features and releases.
type flags struct {
	registry compatibility.ComponentGlobalsRegistry
	version  compatibility.EffectiveVersion
	gate     featuregate.FeatureGate

	forward, forwardAPIs bool
}

// AddFlags adds the API server's flags for features and releases to fs.
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
	fs.Lookup(emulatedVersion).Usage = fmt.Sprintf("release of Kubernetes to emulate: the process has the APIs, "+
		"features and defaults of this release; %s (default %s)", strings.Join(Emulatable(), " or "), ownRelease())
	fs.BoolVar(&o.flags.forward, "emulation-forward-compatible", false,
		"not supported: with --emulated-version, serve the stable APIs of later releases")
	fs.BoolVar(&o.flags.forwardAPIs, "runtime-config-emulation-forward-compatible", false,
		"not supported: with --emulated-version, let --runtime-config name APIs of later releases")
	return nil
}

const (
	emulatedVersion = "emulated-version"
	featureGates    = "feature-gates"
)

// AddEmulation adds only the flag --emulated-version to fs.
func (o *Options) AddEmulation(fs *pflag.FlagSet) error { return o.addSome(fs, emulatedVersion) }

// AddGates adds only the flags --emulated-version and --feature-gates to fs.
func (o *Options) AddGates(fs *pflag.FlagSet) error {
	return o.addSome(fs, emulatedVersion, featureGates)
}

func (o *Options) addSome(fs *pflag.FlagSet, names ...string) error {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	if err := o.AddFlags(all); err != nil {
		return err
	}
	for _, name := range names {
		fs.AddFlag(all.Lookup(name))
	}
	return nil
}

// Note sets Emulated and Turned from the flags. It is called after the flags have been parsed.
func (o *Options) Note() error {
	if err := o.flags.registry.Set(); err != nil {
		return err // returned unwrapped, because it has Kubernetes' text
	}
	known, err := all()
	if err != nil {
		return err
	}
	o.Emulated, o.Turned = 0, nil
	if v := o.flags.version.EmulationVersion(); v.LessThan(ownRelease()) {
		o.Emulated = release.Emulated(v.Minor())
	}
	for name, f := range known {
		if on := o.flags.gate.Enabled(featuregate.Feature(name)); on != f.at(o.Emulated).on {
			if o.Turned == nil {
				o.Turned = Turned{}
			}
			o.Turned[name] = on
		}
	}
	return nil
}

// Complete sets Emulated and Turned from the flags and returns the errors of Validate. It is for
// processes that report no other errors together with these.
func (o *Options) Complete() error {
	if err := o.Note(); err != nil {
		return err
	}
	var errs []error
	o.Validate(func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) })
	return errors.Join(errs...)
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
		add("--feature-gates: %s is not supported: this server cannot turn these features on or off",
			strings.Join(fixed, ","))
	}
}

// validate calls add for each emulated or compatible release that is not supported.
func (f *flags) validate(add func(format string, args ...any)) {
	errs := f.registry.Validate()
	emulated, own, byDefault := f.version.EmulationVersion(), ownRelease(), effective()
	byDefault.SetEmulationVersion(emulated)
	switch {
	case emulated.LessThan(own.SubtractMinor(1)) || own.LessThan(emulated):
		// The errors of Kubernetes list the releases that Kubernetes can emulate.
		errs = []error{fmt.Errorf("--emulated-version: this server cannot emulate %s, only %s", emulated,
			strings.Join(Emulatable(), " and "))}
	case len(errs) > 0:
	case !f.version.MinCompatibilityVersion().EqualTo(byDefault.MinCompatibilityVersion()):
		errs = append(errs, fmt.Errorf(
			"--min-compatibility-version: this server cannot be compatible with %s, only with %s",
			f.version.MinCompatibilityVersion(), byDefault.MinCompatibilityVersion()))
	}
	for _, of := range []struct {
		set         bool
		flag, field string
	}{
		{f.forward, "emulation-forward-compatible", "EmulationForwardCompatible"},
		{f.forwardAPIs, "runtime-config-emulation-forward-compatible", "RuntimeConfigEmulationForwardCompatible"},
	} {
		switch {
		case !of.set:
		case emulated.EqualTo(own):
			errs = append(errs, fmt.Errorf("ServerRunOptions.%s cannot be set to true if the emulation version is the "+
				"same as the binary version", of.field))
		default:
			errs = append(errs, fmt.Errorf("--%s: this server serves no APIs of later releases than the emulated one", of.flag))
		}
	}
	for _, err := range errs {
		add("%w", err)
	}
}

// VersionInfo returns the response for /version.
func (o *Options) VersionInfo() apiversion.Info {
	info := daemon.VersionInfo()
	if o.Emulated != 0 {
		info.EmulationMinor = strconv.FormatUint(uint64(o.Emulated), 10)
		info.MinCompatibilityMinor = strconv.FormatUint(uint64(o.Emulated-1), 10)
	}
	return info
}

// RegisterVersions registers the metric version_info, which has the server's own release and the
// emulated one.
func RegisterVersions(r prometheus.Registerer, o *Options) error {
	info := o.VersionInfo()
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "version_info",
		Help: "[ALPHA] Provides the compatibility version info of the component. The component label is the name of " +
			"the component, usually kube, but is relevant for aggregated-apiservers.",
	}, []string{"component", "binary", "emulation", "min_compat"})
	gauge.WithLabelValues(compatibility.DefaultKubeComponent, daemon.Major+"."+daemon.Minor+"."+daemon.Patch,
		info.EmulationMajor+"."+info.EmulationMinor, info.MinCompatibilityMajor+"."+info.MinCompatibilityMinor).Set(1)
	if err := r.Register(gauge); err != nil {
		return fmt.Errorf("metrics of versions: %w", err)
	}
	return nil
}
