// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"keelson.dev/keelson/pkg/api"
)

// served136 has the resources that Kubernetes 1.36 serves by default, and Keelson's own.
const served136 = `
v1: bindings componentstatuses configmaps endpoints events limitranges namespaces nodes persistentvolumeclaims
v1: persistentvolumes pods podtemplates replicationcontrollers resourcequotas secrets serviceaccounts services
admissionregistration.k8s.io/v1: mutatingadmissionpolicies mutatingadmissionpolicybindings
admissionregistration.k8s.io/v1: mutatingwebhookconfigurations validatingadmissionpolicies
admissionregistration.k8s.io/v1: validatingadmissionpolicybindings validatingwebhookconfigurations
apiextensions.k8s.io/v1: customresourcedefinitions
apiregistration.k8s.io/v1: apiservices
apps/v1: controllerrevisions daemonsets deployments replicasets statefulsets
authentication.k8s.io/v1: selfsubjectreviews tokenreviews
authorization.k8s.io/v1: localsubjectaccessreviews selfsubjectaccessreviews selfsubjectrulesreviews
authorization.k8s.io/v1: subjectaccessreviews
autoscaling/v1: horizontalpodautoscalers
autoscaling/v2: horizontalpodautoscalers
batch/v1: cronjobs jobs
certificates.k8s.io/v1: certificatesigningrequests
coordination.k8s.io/v1: leases
discovery.k8s.io/v1: endpointslices
events.k8s.io/v1: events
flowcontrol.apiserver.k8s.io/v1: flowschemas prioritylevelconfigurations
networking.k8s.io/v1: ingressclasses ingresses ipaddresses networkpolicies servicecidrs
node.k8s.io/v1: runtimeclasses
policy/v1: poddisruptionbudgets
rbac.authorization.k8s.io/v1: clusterrolebindings clusterroles rolebindings roles
resource.k8s.io/v1: deviceclasses resourceclaims resourceclaimtemplates resourceslices
scheduling.k8s.io/v1: priorityclasses
scheduling.keelson.dev/v1alpha1: bindingbatches verdictbatches
storage.k8s.io/v1: csidrivers csinodes csistoragecapacities storageclasses volumeattachments volumeattributesclasses
`

// optional136 has the other resources that Keelson serves at 1.36 if an operator turns on everything.
const optional136 = `
internal.apiserver.k8s.io/v1alpha1: storageversions
networking.k8s.io/v1beta1: ipaddresses servicecidrs
resource.k8s.io/v1alpha3: devicetaintrules
resource.k8s.io/v1beta1: deviceclasses resourceclaims resourceclaimtemplates resourceslices
resource.k8s.io/v1beta2: deviceclasses devicetaintrules resourceclaims resourceclaimtemplates resourceslices
storage.k8s.io/v1beta1: volumeattributesclasses
storagemigration.k8s.io/v1beta1: storageversionmigrations
`

func parseServed(table string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(table)) {
		version, resources, _ := strings.Cut(line, ":")
		for _, r := range strings.Fields(resources) {
			out[version+"/"+r] = true
		}
	}
	return out
}

// TestServedEmulated checks which versions of all kinds a server serves that emulates 1.36. The gates
// of all rows that have one are off by default in 1.36.
func TestServedEmulated(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	everything := parseServed(served136 + strings.TrimSpace(optional136))
	for name, tc := range map[string]struct {
		config  api.RuntimeConfig
		feature string
		want    map[string]bool
		wrong   string
	}{
		"by default":       {want: parseServed(served136)},
		"everything":       {api.RuntimeConfig{"api/all": true}, "StorageVersionMigrator", everything, ""},
		"version is later": {api.RuntimeConfig{"certificates.k8s.io/v1": true}, "", parseServed(served136), ""},
		"only version is later": {api.RuntimeConfig{"storagemigration.k8s.io/v1": true}, "StorageVersionMigrator", nil,
			"cannot enable version storagemigration.k8s.io/v1 in runtime-config because all the resources have been " +
				"introduced after the current version 1.36"},
		"only version of workloads is later": {api.RuntimeConfig{"scheduling.k8s.io/v1beta1": true}, "GenericWorkload", nil,
			"cannot enable version scheduling.k8s.io/v1beta1 in runtime-config because all the resources have been " +
				"introduced after the current version 1.36"},
		"resource is later": {api.RuntimeConfig{"storagemigration.k8s.io/v1/storageversionmigrations": true},
			"StorageVersionMigrator", nil, "cannot enable resource storagemigration.k8s.io/v1, " +
				"Resource=storageversionmigrations in runtime-config because it is introduced at 1.37 after the current " +
				"version 1.36"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := func(f string) bool { return f == tc.feature }
			rows, err := api.Served(tc.config, scheme, api.Deps{Emulated: 36, Enabled: on})
			if tc.wrong != "" {
				if err == nil || err.Error() != tc.wrong {
					t.Errorf("error %v, want %s", err, tc.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for _, row := range rows {
				for _, v := range row.Versions {
					got[schema.GroupVersion{Group: row.Group, Version: v.Name}.String()+"/"+row.Resource] = true
				}
			}
			for _, r := range slices.Sorted(maps.Keys(got)) {
				if !tc.want[r] {
					t.Errorf("%s is served", r)
				}
			}
			for _, r := range slices.Sorted(maps.Keys(tc.want)) {
				if !got[r] {
					t.Errorf("%s is not served", r)
				}
			}
		})
	}
}
