// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"runtime"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/version"

	"keelson.dev/keelson/pkg/release"
)

// The Kubernetes version with which the processes are compatible.
const Major, Minor, Patch = "1", "37", "2"

// Version is the version that is reported to clients. It is a Kubernetes version, which clients can
// parse, followed by Keelson's version after the plus sign.
var Version = "v" + Major + "." + Minor + "." + Patch + "+keelson." + release.Version

// VersionInfo returns the response for /version.
func VersionInfo() version.Info {
	info := version.Info{
		Major: Major, Minor: Minor,
		EmulationMajor: Major, EmulationMinor: Minor,
		MinCompatibilityMajor: Major, MinCompatibilityMinor: "36",
		GitVersion: Version, BuildDate: "1970-01-01T00:00:00Z",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler,
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if release.Commit != "" {
		info.GitCommit, info.BuildDate, info.GitTreeState = release.Commit, release.Date, "clean"
		return info
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				info.GitCommit = s.Value
			case "vcs.time":
				info.BuildDate = s.Value
			case "vcs.modified":
				info.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
			}
		}
	}
	return info
}
