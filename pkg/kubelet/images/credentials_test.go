// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/api/clock"
)

func TestMatchesRegistry(t *testing.T) {
	for name, c := range map[string]struct {
		key, image string
		want       bool
	}{
		"host":                              {"registry.example.com", "registry.example.com/a/b", true},
		"another host":                      {"registry.example.com", "example.com/a", false},
		"port":                              {"registry.example.com:5000", "registry.example.com:5000/a", true},
		"port missing":                      {"registry.example.com", "registry.example.com:5000/a", false},
		"pattern in a label":                {"*.example.com", "registry.example.com/a", true},
		"pattern does not match two labels": {"*.example.com", "a.b.example.com/a", false},
		"path":                              {"registry.example.com/team", "registry.example.com/team/a", true},
		"different path":                    {"registry.example.com/team", "registry.example.com/other/a", false},
		"path is a prefix":                  {"registry.example.com/team", "registry.example.com/teams/a", true},
		"path below a version":              {"https://registry.example.com/v2/team", "registry.example.com/team/a", true},
		"pattern does not match a port":     {"registry.*", "registry.example:5000/a", false},
		"pattern and port":                  {"*.example.com:5000", "registry.example.com:5000/a", true},
		"URL of Docker Hub":                 {"https://index.docker.io/v1/", "docker.io/library/busybox", true},
		"URL":                               {"https://registry.example.com/v2/", "registry.example.com/a", true},
		"no URL":                            {"://", "registry.example.com/a", false},
	} {
		if got := matchesRegistry(c.key, c.image); got != c.want {
			t.Errorf("%s: %q for %q: %t", name, c.key, c.image, got)
		}
	}
}

type secrets map[string]*v1.Secret

func (s secrets) Secret(_ context.Context, _, name string) (*v1.Secret, error) {
	if s[name] == nil {
		return nil, errors.New("not there")
	}
	return s[name], nil
}

func TestCredentials(t *testing.T) {
	p := New(Config{Secrets: secrets{
		"json": {Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(
			`{"auths":{"reg.example.com":{"username":"wide","password":"p"},"reg.example.com/team":{"auth":"bmFycm93OmE6Yg=="}}}`)}},
		"old": {Type: v1.SecretTypeDockercfg,
			Data: map[string][]byte{v1.DockerConfigKey: []byte(`{"docker.io":{"username":"hub","password":"q"}}`)}},
		"broken": {Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{`)}},
	}})
	pod := &v1.Pod{Spec: v1.PodSpec{ImagePullSecrets: []v1.LocalObjectReference{{Name: "none"},
		{Name: "broken"}, {Name: "json"}, {Name: "old"}}}}
	for image, want := range map[string][]string{
		"reg.example.com/team/app:1": {"narrow a:b", "wide p"}, // the most specific login first
		"reg.example.com/app":        {"wide p"},
		"busybox":                    {"hub q"},
		"other.example.com/app":      nil,
	} {
		var got []string
		for _, c := range p.credentials(t.Context(), pod, image) {
			a := c.auth
			got = append(got, a.Username+" "+a.Password)
		}
		if len(got) != len(want) {
			t.Errorf("%s: %q, want %q", image, got, want)
			continue
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %q, want %q", image, got, want)
			}
		}
	}
}

// TestMissingPullSecrets checks that a missing pull secret is reported if a pull fails, but not if
// it succeeds (kubernetes/kubernetes#138432).
func TestMissingPullSecrets(t *testing.T) {
	const report = "FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (a, b); " +
		"attempting to pull the image may not succeed."
	for name, tc := range map[string]struct {
		fails error
		want  bool
	}{
		"pull succeeds": {nil, false},
		"pull fails":    {errors.New("no access"), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, e := &registry{here: map[string]bool{}, fails: tc.fails}, &recordedEvents{}
				p := New(Config{Runtime: r, Secrets: r, Clock: clock.Real(), Event: e.event})
				pod := pod("u")
				pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "a"}, {Name: "b"}}
				_, err := p.Ensure(t.Context(), pod,
					&v1.Container{Name: "c", Image: "img", ImagePullPolicy: v1.PullAlways}, nil, "")
				if (err != nil) != (tc.fails != nil) {
					t.Fatal(err)
				}
				if slices.Contains(e.list, report) != tc.want {
					t.Errorf("events %q, want the report: %v", e.list, tc.want)
				}
			})
		})
	}
}
