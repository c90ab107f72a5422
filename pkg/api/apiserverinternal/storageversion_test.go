// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserverinternal_test

import (
	"slices"
	"testing"
	"time"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/api/apiserverinternal"
	"keelson.dev/keelson/pkg/api/rowtest"
)

func TestNames(t *testing.T) {
	t.Parallel()
	row := rowtest.Row(t, apiserverinternal.Rows(), "storageversions")
	for name, want := range map[string][]string{
		"core.pods":  nil,
		"a.b.c.pods": nil,
		"pods":       {"name must be in the form of <group>.<resource>"},
		"core.pods-of-": {"the resource segment a DNS-1035 label must consist of lower case alphanumeric " +
			"characters or '-', start with an alphabetic character, and end with an alphanumeric character " +
			"(e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"},
	} {
		if got := row.ValidateName(name, false); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status string
		want   []string
	}{
		"no servers": {`{}`, nil},
		"one": {`{"commonEncodingVersion":"v1","storageVersions":[{"apiServerID":"a",` +
			`"encodingVersion":"v1","decodableVersions":["v1"],"servedVersions":["v1"]}]}`, nil},
		"differ": {`{"storageVersions":[{"apiServerID":"a","encodingVersion":"g/v1",` +
			`"decodableVersions":["g/v1"]},{"apiServerID":"b","encodingVersion":"g/v2","decodableVersions":["g/v2"]}]}`, nil},
		"repeated server": {`{"commonEncodingVersion":"v1","storageVersions":[{"apiServerID":"a",` +
			`"encodingVersion":"v1","decodableVersions":["v1"]},{"apiServerID":"a","encodingVersion":"v1",` +
			`"decodableVersions":["v1"]}]}`, []string{`status.storageVersions[1].apiServerID: Duplicate value: "a"`}},
		"not said": {`{"storageVersions":[{"apiServerID":"a","encodingVersion":"v1","decodableVersions":["v1"]}]}`, []string{
			"status.commonEncodingVersion: Invalid value: null: the common encoding version is v1",
		}},
		"served but not read": {`{"commonEncodingVersion":"v1","storageVersions":[{"apiServerID":"a",` +
			`"encodingVersion":"v1","decodableVersions":["v1"],"servedVersions":["v2"]}]}`, []string{
			`status.storageVersions[0].servedVersions[0]: Invalid value: "v2": individual served version : ` +
				`v2 must be included in decodableVersions : [v1]`,
		}},
		"stored but not read": {`{"commonEncodingVersion":"v1","storageVersions":[{"apiServerID":"a",` +
			`"encodingVersion":"v1","decodableVersions":["v2"]}]}`, []string{
			`status.storageVersions[0].decodableVersions: Invalid value: ["v2"]: decodableVersions must ` +
				`include encodingVersion v1`,
		}},
		"no version": {`{"commonEncodingVersion":"/","storageVersions":[{"apiServerID":"a",` +
			`"encodingVersion":"/","decodableVersions":["/"]}]}`, []string{
			`status.storageVersions[0].encodingVersion: Invalid value: "/": group part: must be non-empty,` +
				`version part: must be non-empty`,
			`status.storageVersions[0].decodableVersions[0]: Invalid value: "/": group part: must be ` +
				`non-empty,version part: must be non-empty`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := rowtest.Row(t, apiserverinternal.Rows(), "storageversions")
			obj := rowtest.Decode(t, row, "core.pods", `{"spec":{},"status":`+tc.status+`}`)
			rowtest.Check(t, row.Subresources[0].ValidateUpdate(t.Context(), obj, obj), tc.want)
		})
	}
}

// TestAgree checks that the condition is computed from the servers, and that its transition time
// changes only if its status or the common version changes.
func TestAgree(t *testing.T) {
	t.Parallel()
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	server := func(id, version string) apiserverinternalv1alpha1.ServerStorageVersion {
		return apiserverinternalv1alpha1.ServerStorageVersion{APIServerID: id, EncodingVersion: version}
	}
	v := &apiserverinternalv1alpha1.StorageVersion{}
	for i, step := range []struct {
		servers []apiserverinternalv1alpha1.ServerStorageVersion
		common  string
		since   int
	}{
		{nil, "", 0},
		{[]apiserverinternalv1alpha1.ServerStorageVersion{server("a", "v1")}, "v1", 1},
		{[]apiserverinternalv1alpha1.ServerStorageVersion{server("a", "v1"), server("b", "v1")}, "v1", 1},
		{[]apiserverinternalv1alpha1.ServerStorageVersion{server("a", "v1"), server("b", "v2")}, "", 3},
		{[]apiserverinternalv1alpha1.ServerStorageVersion{server("b", "v2")}, "v2", 4},
		{[]apiserverinternalv1alpha1.ServerStorageVersion{server("b", "v3")}, "v3", 5},
	} {
		v.Status.StorageVersions = step.servers
		apiserverinternal.Agree(v, at(i))
		common := ""
		if c := v.Status.CommonEncodingVersion; c != nil {
			common = *c
		}
		if since := v.Status.Conditions[0].LastTransitionTime; common != step.common ||
			!since.Equal(ptr(metav1.NewTime(at(step.since)))) || len(v.Status.Conditions) != 1 {
			t.Errorf("step %d: %q since %v, want %q since %v", i, common, since, step.common, at(step.since))
		}
	}
}

func ptr[T any](v T) *T { return &v }
