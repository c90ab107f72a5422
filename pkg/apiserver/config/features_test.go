// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"keelson.dev/keelson/pkg/features"
	"keelson.dev/keelson/pkg/release"
)

// needed returns args and the flags that every server requires.
func needed(args ...string) []string {
	return append([]string{
		"--service-account-issuer=https://a", "--service-account-key-file=a", "--service-account-signing-key-file=a",
		"--service-cluster-ip-range=10.0.0.0/16",
	}, args...)
}

// TestFeatureGates checks which gates are accepted. The errors for unknown gates must be those of
// Kubernetes.
func TestFeatureGates(t *testing.T) {
	const fixed = " is not supported: this server cannot turn these features on or off"
	for _, tc := range []struct {
		args     string
		turned   features.Turned
		wrong    string
		emulated release.Emulated
	}{
		{args: ""},
		{args: "--feature-gates="},
		{args: "--feature-gates=Foo=true", wrong: "unrecognized feature gate: Foo"},
		{args: "--feature-gates==true", wrong: "unrecognized feature gate: "},
		{args: "--feature-gates=:Foo=true", wrong: "unrecognized feature gate: Foo"},
		{args: "--feature-gates=Foo", wrong: "missing bool value for Foo"},
		{args: "--feature-gates=AllAlpha=maybe",
			wrong: `invalid value of AllAlpha=maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax`},
		{args: "--feature-gates=KubeletTracing=false",
			wrong: "cannot set feature gate KubeletTracing to false, feature is locked to true"},
		{args: "--feature-gates=GitRepoVolumeDriver=true",
			wrong: "cannot set feature gate GitRepoVolumeDriver to true, feature is locked to false"},
		{args: "--feature-gates=wardle:Foo=true", wrong: "component not registered: wardle"},
		{args: "--feature-gates=kube:GenericWorkload=false,OpenAPIEnums=true",
			wrong: "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use"},
		{args: "--feature-gates=KubeletTracing=true,GenericWorkload=false,AllAlpha=false"},
		{args: "--feature-gates=kube:OpenAPIEnums=true --feature-gates=kube:KubeletTracing=true"},
		{args: "--feature-gates=GenericWorkload=true,GenericWorkload=false"},
		{args: "--feature-gates=GenericWorkload=true --feature-gates=GenericWorkload=false"},
		{args: "--feature-gates=GenericWorkload=true", turned: features.Turned{"GenericWorkload": true}},
		{args: "--feature-gates=GenericWorkload=true,OpenAPIEnums=false,WorkloadWithJob=true",
			wrong: "--feature-gates: OpenAPIEnums=false,WorkloadWithJob=true" + fixed},
		{args: "--feature-gates=AllAlpha=true,AllBeta=true", wrong: "--feature-gates: AllAlpha=true" + fixed},
		{args: "--feature-gates=PodGroupPreemptionPolicy=true",
			wrong: "PodGroupPreemptionPolicy is enabled, but depends on features that are disabled: [GenericWorkload]"},
		{args: "--feature-gates=EventedPLEG=true,SchedulerAsyncPreemption=false",
			turned: features.Turned{"EventedPLEG": true, "SchedulerAsyncPreemption": false}},
		{args: "--feature-gates=StorageVersionMigrator=false", turned: features.Turned{"StorageVersionMigrator": false}},

		{args: "--emulated-version=1.37"},
		{args: "--emulated-version=kube=1.37 --min-compatibility-version=kube=1.36"},
		{args: "--emulated-version=1.37.0"},
		{args: "--emulated-version="},
		{args: "--emulated-version=1.36", emulated: 36},
		{args: "--emulated-version=kube=1.36 --min-compatibility-version=1.35", emulated: 36},
		{args: "--emulated-version=1.35",
			wrong: "--emulated-version: this server cannot emulate 1.35, only 1.36 and 1.37"},
		{args: "--emulated-version=1.36 --min-compatibility-version=1.36",
			wrong: "--min-compatibility-version: this server cannot be compatible with 1.36, only with 1.35"},
		{args: "--emulated-version=1.36 --min-compatibility-version=1.37",
			wrong: "minCompatibilityVersion version 1.37 is not between [1.34, 1.36]"},
		{args: "--emulated-version=1.36 --feature-gates=StorageVersionMigrator=true", emulated: 36,
			turned: features.Turned{"StorageVersionMigrator": true}},
		{args: "--emulated-version=1.36 --feature-gates=GenericWorkload=true", emulated: 36,
			turned: features.Turned{"GenericWorkload": true}},
		{args: "--emulated-version=1.36 --feature-gates=StorageVersionMigrator=false,HPAScaleToZero=false", emulated: 36},
		{args: "--emulated-version=1.36 --feature-gates=HPAScaleToZero=true",
			wrong: "--feature-gates: HPAScaleToZero=true" + fixed},
		{args: "--emulated-version=1.36 --feature-gates=HostnameOverride=false",
			wrong: "--feature-gates: HostnameOverride=false" + fixed},
		{args: "--emulated-version=1.36 --feature-gates=HPAGeneration=true", wrong: "cannot set feature gate " +
			"HPAGeneration to true, feature is PreAlpha at emulated version 1.36, min compatibility version 1.35"},
		{args: "--emulated-version=1.36 --emulation-forward-compatible", wrong: "--emulation-forward-compatible: " +
			"this server serves no APIs of later releases than the emulated one"},
		{args: "--emulated-version=1.36 --runtime-config-emulation-forward-compatible",
			wrong: "--runtime-config-emulation-forward-compatible: this server serves no APIs of later releases " +
				"than the emulated one"},
		{args: "--emulated-version=1.38",
			wrong: "--emulated-version: this server cannot emulate 1.38, only 1.36 and 1.37"},
		{args: "--emulated-version=1.32",
			wrong: "--emulated-version: this server cannot emulate 1.32, only 1.36 and 1.37"},
		{args: "--emulated-version=1.37.1", wrong: "patch version not allowed, got: kube=1.37.1"},
		{args: "--emulated-version=x", wrong: `could not parse "x" as version`},
		{args: "--emulated-version=foo=1.37", wrong: "component not registered: foo"},
		{args: "--emulated-version=kube=1.37,kube=1.36", wrong: "duplicate version flag, kube=1.37 and kube=1.36"},
		{args: "--min-compatibility-version=1.38", wrong: "minCompatibilityVersion version 1.38 is not between [1.34, 1.37]"},
		{args: "--min-compatibility-version=1.20", wrong: "minCompatibilityVersion version 1.20 is not between [1.34, 1.37]"},
		{args: "--min-compatibility-version=1.37",
			wrong: "--min-compatibility-version: this server cannot be compatible with 1.37, only with 1.36"},
		{args: "--emulation-forward-compatible", wrong: "ServerRunOptions.EmulationForwardCompatible cannot " +
			"be set to true if the emulation version is the same as the binary version"},
		{args: "--runtime-config-emulation-forward-compatible",
			wrong: "ServerRunOptions.RuntimeConfigEmulationForwardCompatible cannot be set to true if the " +
				"emulation version is the same as the binary version"},
		{args: "--emulation-forward-compatible=x", wrong: `invalid argument "x" for ` +
			`"--emulation-forward-compatible" flag: strconv.ParseBool: parsing "x": invalid syntax`},
		{args: "--feature-gates=Foo=true --emulated-version=1.39", wrong: "unrecognized feature gate: Foo"},
	} {
		c, err := Parse(needed(strings.Fields(tc.args)...), io.Discard)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tc.wrong {
			t.Errorf("%s: %q, want %q", tc.args, got, tc.wrong)
		}
		if err == nil && !maps.Equal(c.Features.Turned, tc.turned) {
			t.Errorf("%s: turned %v, want %v", tc.args, c.Features.Turned, tc.turned)
		}
		if err == nil && c.Features.Emulated != tc.emulated {
			t.Errorf("%s: emulated %s, want %s", tc.args, c.Features.Emulated, tc.emulated)
		}
	}
}

// TestFeatureGatesHelp checks that the help text lists feature gates with stage and default, and
// only gates that can be changed.
func TestFeatureGatesHelp(t *testing.T) {
	var out bytes.Buffer
	if _, err := Parse([]string{"--help"}, &out); !errors.Is(err, pflag.ErrHelp) {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kube:AllAlpha=true|false (ALPHA - default=false)", "kube:OpenAPIEnums=true|false (BETA - default=true)",
		"kube=1.34..1.37(default:1.36)", "1.36 or 1.37 (default 1.37)",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help does not list %q", want)
		}
	}
	if strings.Contains(out.String(), "kube:KubeletTracing") {
		t.Error("the help lists a gate that cannot be changed")
	}
}
