// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	"keelson.dev/apiserver/discovery"
	"keelson.dev/keelson/pkg/api"
)

// TestStorageVersionHashes compares storage version hashes, which storage migrators rely on, with
// those of Kubernetes, for kinds that are stored in another version than the one that is served.
func TestStorageVersionHashes(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"events.k8s.io/events": "r2yiGXH7wu8=",
		"admissionregistration.k8s.io/mutatingadmissionpolicies":       "mHCkTKpUTrE=",
		"admissionregistration.k8s.io/mutatingadmissionpolicybindings": "ZKgZT1uTmZ0=",
		"autoscaling/horizontalpodautoscalers":                         "qwQve8ut294=",
		"certificates.k8s.io/clustertrustbundles":                      "v5yhuVertL4=",
		"certificates.k8s.io/podcertificaterequests":                   "wYA9yXQH8fg=",
		"resource.k8s.io/devicetaintrules":                             "i+85+TcIKpA=",
		"storagemigration.k8s.io/storageversionmigrations":             "pCjmmKOkLy4=",
		"apiextensions.k8s.io/customresourcedefinitions":               "jfWCUB31mvA=",
	}
	for _, row := range api.Rows(api.Deps{}) {
		for _, r := range discovery.Resources(api.Rows(api.Deps{}), row.Version) {
			hash, ok := want[row.Group+"/"+r.Name]
			if ok && r.Name == row.Resource && r.Kind == row.Kind && r.StorageVersionHash == hash {
				delete(want, row.Group+"/"+r.Name)
			}
		}
	}
	for name, hash := range want {
		t.Errorf("%s has not the hash %s", name, hash)
	}
}
