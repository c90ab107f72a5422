// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/version"

	"keelson.dev/keelson/pkg/release"
)

// TestBuildInfo checks that every process exports its build in the same metric as Kubernetes, and
// Keelson's version in a metric of its own.
func TestBuildInfo(t *testing.T) {
	families, err := NewMetrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]map[string]string{}
	for _, f := range families {
		labels[f.GetName()] = map[string]string{}
		for _, l := range f.Metric[0].Label {
			labels[f.GetName()][l.GetName()] = l.GetValue()
		}
	}
	if build := labels["kubernetes_build_info"]; len(build) != 9 || build["git_version"] != Version ||
		build["minor"] != Minor {
		t.Errorf("build info %v", build)
	}
	if ours := labels["keelson_build_info"]; len(ours) != 1 || ours["version"] != release.Version {
		t.Errorf("Keelson's build info %v", ours)
	}
}

// TestVersionIsKubernetes checks that clients can parse the reported version, and that it contains
// both Kubernetes' and Keelson's version.
func TestVersionIsKubernetes(t *testing.T) {
	v, err := version.ParseSemantic(VersionInfo().GitVersion)
	if err != nil {
		t.Fatal(err)
	}
	if v.Major() != 1 || v.Minor() != 37 || v.BuildMetadata() != "keelson."+release.Version {
		t.Errorf("version %v", v)
	}
}

// TestReleaseReportsItsCommit checks that /version shows the commit that the linker has set.
func TestReleaseReportsItsCommit(t *testing.T) {
	t.Cleanup(func() { release.Commit, release.Date = "", "" })
	release.Commit, release.Date = "0123abc", "2026-11-30T12:00:00Z"
	got := VersionInfo()
	if got.GitCommit != "0123abc" || got.BuildDate != "2026-11-30T12:00:00Z" || got.GitTreeState != "clean" {
		t.Errorf("version %+v", got)
	}
}
