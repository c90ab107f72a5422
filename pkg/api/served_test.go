// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"keelson.dev/apiserver/registry"
	apiresource "keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api"
)

func TestServed(t *testing.T) {
	t.Parallel()
	const (
		stable               = "storageversionmigrations.storagemigration.k8s.io/v1"
		migrations, versions = "storageversionmigrations.storagemigration.k8s.io/v1beta1",
			"storageversions.internal.apiserver.k8s.io/v1alpha1"
		deployments  = "deployments.apps/v1"
		autoscalers1 = "horizontalpodautoscalers.autoscaling/v1"
		autoscalers2 = "horizontalpodautoscalers.autoscaling/v2"
	)
	older := []string{"clustertrustbundles.certificates.k8s.io/v1beta1",
		"podcertificaterequests.certificates.k8s.io/v1beta1"}
	for _, devices := range []string{"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"} {
		older = append(older, devices+".resource.k8s.io/v1beta1", devices+".resource.k8s.io/v1beta2")
	}
	const alphaRules = "devicetaintrules.resource.k8s.io/v1alpha3"
	older = append(older, "devicetaintrules.resource.k8s.io/v1beta2")
	byDefault := names(t, nil, "")
	for name, tc := range map[string]struct {
		config  api.RuntimeConfig
		feature string
		more    []string
		less    []string
		wrong   string
	}{
		"version turned on": {config: api.RuntimeConfig{"internal.apiserver.k8s.io/v1alpha1": true},
			more: []string{versions}},
		"version behind a feature gate": {config: api.RuntimeConfig{"storagemigration.k8s.io/v1beta1": true},
			feature: "StorageVersionMigrator", more: []string{stable, migrations}},
		"version whose feature gate is off": {config: api.RuntimeConfig{"storagemigration.k8s.io/v1beta1": true}},
		"workloads": {config: api.RuntimeConfig{"scheduling.k8s.io/v1beta1": true}, feature: "GenericWorkload",
			more: []string{"podgroups.scheduling.k8s.io/v1beta1", "workloads.scheduling.k8s.io/v1beta1"}},
		"workloads without their gate": {config: api.RuntimeConfig{"scheduling.k8s.io/v1beta1": true,
			"scheduling.k8s.io/v1alpha3": true}},
		"workloads without their version": {feature: "GenericWorkload"},
		"later version of workloads": {config: api.RuntimeConfig{"scheduling.k8s.io/v1alpha3": true},
			feature: "GenericWorkload", wrong: "runtime-config: this server does not have scheduling.k8s.io/v1alpha3"},
		"feature gate without a version": {feature: "StorageVersionMigrator", more: []string{stable}},
		"resource turned on": {
			config: api.RuntimeConfig{"internal.apiserver.k8s.io/v1alpha1/storageversions": true}, more: []string{versions}},
		"all": {config: api.RuntimeConfig{"api/all": true},
			feature: "StorageVersionMigrator", more: append([]string{versions, stable, migrations, alphaRules}, older...)},
		"beta": {config: api.RuntimeConfig{"api/beta": true},
			feature: "StorageVersionMigrator", more: append([]string{stable, migrations}, older...)},
		"alpha": {config: api.RuntimeConfig{"api/alpha": true},
			feature: "StorageVersionMigrator", more: []string{versions, stable, alphaRules}},
		"all versions except one": {
			config:  api.RuntimeConfig{"api/all": true, "internal.apiserver.k8s.io/v1alpha1": false},
			feature: "StorageVersionMigrator", more: append([]string{stable, migrations, alphaRules}, older...)},
		"alpha version of one of its resources": {config: api.RuntimeConfig{"resource.k8s.io/v1alpha3": true},
			more: []string{alphaRules}},
		"resource that this server does not have": {
			config: api.RuntimeConfig{"resource.k8s.io/v1alpha3": true,
				"resource.k8s.io/v1alpha3/resourcepoolstatusrequests": true},
			wrong: "runtime-config: this server does not have resource.k8s.io/v1alpha3/resourcepoolstatusrequests"},
		"turning off a resource that this server does not have": {
			config: api.RuntimeConfig{"resource.k8s.io/v1alpha3/resourcepoolstatusrequests": false}},
		"resource turned on in a version that is off": {
			config: api.RuntimeConfig{"internal.apiserver.k8s.io/v1alpha1": false,
				"internal.apiserver.k8s.io/v1alpha1/storageversions": true}, more: []string{versions}},
		"version that is served by default": {config: api.RuntimeConfig{"apps/v1": true, "v1": true,
			"api/ga": true, "api/legacy": false, "api/beta": false}},
		"resource turned off": {config: api.RuntimeConfig{"apps/v1/deployments": false},
			less: []string{deployments}},
		"unknown resource": {config: api.RuntimeConfig{"apps/v1/foos": false}},
		"one of two versions": {config: api.RuntimeConfig{"autoscaling/v2": false},
			less: []string{autoscalers2}},
		"other one of two versions": {config: api.RuntimeConfig{"autoscaling/v1": false},
			less: []string{autoscalers1}},
		"whole group turned off": {config: api.RuntimeConfig{"autoscaling/v1": false,
			"autoscaling/v2": false}, less: []string{autoscalers1, autoscalers2}},
		"group that no longer exists": {config: api.RuntimeConfig{"extensions/v1beta1": true}},
		"version that this server does not have": {
			config: api.RuntimeConfig{"coordination.k8s.io/v1beta1": true,
				"coordination.k8s.io/v1alpha2/leasecandidates": true},
			wrong: "runtime-config: this server does not have coordination.k8s.io/v1alpha2,coordination.k8s.io/v1beta1"},
		"turning off a version that this server does not have": {
			config: api.RuntimeConfig{"coordination.k8s.io/v1beta1": false}},
		"an older version": {config: api.RuntimeConfig{"policy/v1beta1": true}},
		"core group": {config: api.RuntimeConfig{"v1": false},
			wrong: "runtime-config: bindings of the core group (v1) cannot be turned off"},
		"resource of the core group": {config: api.RuntimeConfig{"v1/pods": false},
			wrong: "runtime-config: pods of the core group (v1) cannot be turned off"},
		"group of the aggregator": {
			config: api.RuntimeConfig{"apiregistration.k8s.io/v1/apiservices": false},
			wrong:  "API group/version apiregistration.k8s.io/v1 must be enabled"},
		"unknown version": {config: api.RuntimeConfig{"apps/v7": false},
			wrong: "group version apps/v7 that has not been registered"},
		"resource of an unknown group": {config: api.RuntimeConfig{"apps/v7/deployments": true},
			wrong: "group version apps/v7 that has not been registered"},
		"unknown group": {
			config: api.RuntimeConfig{"foo/v1": true, "bar/v2/things": false, "bar/v2": true, "apps/v7": true},
			wrong:  "unknown api groups bar/v2,foo/v1"},
		"malformed key": {config: api.RuntimeConfig{"foo": true, "bar/v1": true,
			"z/y/x/w": true}, wrong: "runtime-config invalid key foo"},
		"a subresource": {
			config: api.RuntimeConfig{"apps/v1/deployments/status": false},
			wrong:  "runtime-config invalid key apps/v1/deployments/status"},
		"empty key": {config: api.RuntimeConfig{"": true},
			wrong: "runtime-config invalid key "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := names(t, tc.config, tc.feature, tc.wrong)
			if tc.wrong != "" {
				return
			}
			for _, n := range tc.more {
				if !got[n] || byDefault[n] {
					t.Errorf("%s: %v, by default: %v", n, got[n], byDefault[n])
				}
			}
			for _, n := range tc.less {
				if got[n] || !byDefault[n] {
					t.Errorf("%s: %v, by default: %v", n, got[n], byDefault[n])
				}
			}
			if want := len(byDefault) + len(tc.more) - len(tc.less); len(got) != want {
				t.Errorf("%d served, want %d", len(got), want)
			}
		})
	}
}

// names returns the resources and versions that are served, as the keys of a map. The argument
// wrong is the expected error; if it is missing, no error is expected.
func names(t *testing.T, config api.RuntimeConfig, feature string, wrong ...string) map[string]bool {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	on := func(f string) bool { return f != "StorageVersionMigrator" && f != "GenericWorkload" || f == feature }
	rows, err := api.Served(config, scheme, api.Deps{Enabled: on})
	got := ""
	if err != nil {
		got = err.Error()
	}
	if want := strings.Join(wrong, ""); got != want {
		t.Errorf("error %q, want %q", got, want)
	}
	out := map[string]bool{}
	for _, row := range rows {
		for _, v := range row.Versions {
			out[row.Resource+"."+schema.GroupVersion{Group: row.Group, Version: v.Name}.String()] = true
		}
	}
	return out
}

// TestStoredInVersionsNotServed checks that objects that were stored while a version was served can
// be read when the version is no longer served.
func TestStoredInVersionsNotServed(t *testing.T) {
	t.Parallel()
	rows, err := api.Served(api.RuntimeConfig{"autoscaling/v1": false}, clientscheme.Scheme, api.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	for resource, tc := range map[string]struct{ stored, want string }{
		"horizontalpodautoscalers": {
			`{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","spec":{"maxReplicas":3,"targetCPUUtilizationPercentage":70}}`,
			`"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":70}}}]`,
		},
		"resourceclaims": {
			`{"kind":"ResourceClaim","apiVersion":"resource.k8s.io/v1beta1","spec":{"devices":{"requests":[{"name":"r","deviceClassName":"c","count":2}]}}}`,
			`"requests":[{"name":"r","exactly":{"deviceClassName":"c","allocationMode":"ExactCount","count":2}}]`,
		},
	} {
		i := slices.IndexFunc(rows, func(r *apiresource.Row) bool { return r.Resource == resource })
		obj, err := registry.Codec(rows[i]).Decode([]byte(tc.stored), 1)
		if err != nil {
			t.Errorf("%s: %v", resource, err)
			continue
		}
		if got, err := json.Marshal(obj); err != nil || !strings.Contains(string(got), tc.want) {
			t.Errorf("%s: got %s, want %s in it, error %v", resource, got, tc.want, err)
		}
	}
}

// TestTwins checks that the rows of the events of both API groups know each other, unless the server
// serves only one of the groups.
func TestTwins(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config api.RuntimeConfig
		want   []string
	}{
		"both groups": {want: []string{"/events events.k8s.io/events", "events.k8s.io/events /events"}},
		"one group":   {config: api.RuntimeConfig{"events.k8s.io/v1": false}},
	} {
		rows, err := api.Served(tc.config, clientscheme.Scheme, api.Deps{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, row := range rows {
			if twin := row.Twin; twin != nil {
				got = append(got, row.Group+"/"+row.Resource+" "+twin.Group+"/"+twin.Resource)
			}
		}
		if slices.Sort(got); !slices.Equal(got, tc.want) {
			t.Errorf("%s: twins %q, want %q", name, got, tc.want)
		}
	}
}
