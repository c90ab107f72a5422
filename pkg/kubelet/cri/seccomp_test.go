// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestSeccomp checks that a container whose seccomp profile has an unknown type fails instead of
// running unconfined (kubernetes/kubernetes#141958).
func TestSeccomp(t *testing.T) {
	const root = "/profiles"
	local, empty := "a.json", ""
	profile := func(kind v1.SeccompProfileType, file *string) *v1.SeccompProfile {
		return &v1.SeccompProfile{Type: kind, LocalhostProfile: file}
	}
	for name, tc := range map[string]struct {
		profile   *v1.SeccompProfile
		byDefault bool
		want      *runtimeapi.SecurityProfile
		err       string
	}{
		"none": {nil, false,
			&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, ""},
		"none, default": {nil, true,
			&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, ""},
		"unconfined": {profile(v1.SeccompProfileTypeUnconfined, nil), true,
			&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, ""},
		"RuntimeDefault": {profile(v1.SeccompProfileTypeRuntimeDefault, nil), false,
			&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, ""},
		"Localhost": {profile(v1.SeccompProfileTypeLocalhost, &local), false,
			&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost,
				LocalhostRef: "/profiles/a.json"}, ""},
		"Localhost without profile": {profile(v1.SeccompProfileTypeLocalhost, &empty), false, nil,
			"localhostProfile must be set if seccompProfile type is Localhost."},
		"unknown type": {profile("Later", nil), false, nil, `unsupported seccomp profile type "Later"`},
		"empty type":   {profile("", nil), false, nil, `unsupported seccomp profile type ""`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := seccomp(tc.profile, ContainerInput{SeccompRoot: root, SeccompDefault: tc.byDefault})
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("error %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil || got.ProfileType != tc.want.ProfileType || got.LocalhostRef != tc.want.LocalhostRef {
				t.Errorf("%v, error %v, want %v", got, err, tc.want)
			}
		})
	}
}
