// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import "testing"

func TestOperation(t *testing.T) {
	for method, want := range map[string]string{
		"/runtime.v1.RuntimeService/RunPodSandbox":            "run_podsandbox",
		"/runtime.v1.RuntimeService/CreateContainer":          "create_container",
		"/runtime.v1.RuntimeService/UpdateContainerResources": "update_container",
		"/runtime.v1.RuntimeService/ListPodSandbox":           "list_podsandbox",
		"/runtime.v1.ImageService/PullImage":                  "pull_image", "/runtime.v1.RuntimeService/Version": "version",
	} {
		if got := operation(method); got != want {
			t.Errorf("%s: %s", method, got)
		}
	}
}
