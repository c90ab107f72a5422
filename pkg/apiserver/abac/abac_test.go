// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package abac

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func load(t *testing.T, text string) (Policies, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policies.jsonl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(file)
}

func asks(name string, groups []string, verb, group, resource, namespace string) authorizer.Attributes {
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: name, Groups: groups}, Verb: verb, APIGroup: group, Resource: resource,
		Namespace: namespace, ResourceRequest: true,
	}
}

func path(name, verb, p string) authorizer.Attributes {
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: name, Groups: []string{"system:authenticated"}}, Verb: verb, Path: p}
}

func TestAuthorize(t *testing.T) {
	const v = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":`
	authenticated := []string{"system:authenticated"}
	for name, test := range map[string]struct {
		policy string
		asks   authorizer.Attributes
		want   bool
	}{
		"all of a group of resources": {
			v + `{"user":"a","namespace":"*","resource":"*","apiGroup":"*"}}`,
			asks("a", nil, "create", "apps", "deployments", "x"), true},
		"another user": {
			v + `{"user":"a","namespace":"*","resource":"*","apiGroup":"*"}}`, asks("b", nil, "get", "", "pods", "x"), false},
		"policy without a subject": {v + `{"namespace":"*","resource":"*","apiGroup":"*"}}`,
			asks("a", authenticated, "get", "", "pods", "x"), false},
		"a group": {v + `{"group":"g","namespace":"*","resource":"pods"}}`,
			asks("b", []string{"g"}, "get", "", "pods", "x"), true},
		"both user and group": {
			v + `{"user":"a","group":"g","namespace":"*","resource":"pods"}}`,
			asks("a", []string{"h"}, "get", "", "pods", "x"), false},
		"all authenticated users": {v + `{"user":"*","namespace":"*","resource":"pods"}}`,
			asks("a", authenticated, "get", "", "pods", "x"), true},
		"all authenticated users, anonymous request": {v + `{"user":"*","namespace":"*","resource":"pods"}}`,
			asks("system:anonymous", []string{"system:unauthenticated"}, "get", "", "pods", "x"), false},
		"empty API group": {v + `{"user":"a","namespace":"*","resource":"*"}}`,
			asks("a", nil, "get", "apps", "deployments", "x"), false},
		"read-only policy, read": {
			v + `{"user":"a","namespace":"n","resource":"pods","readonly":true}}`,
			asks("a", nil, "watch", "", "pods", "n"), true},
		"read-only policy, write": {
			v + `{"user":"a","namespace":"n","resource":"pods","readonly":true}}`,
			asks("a", nil, "delete", "", "pods", "n"), false},
		"another namespace": {v + `{"user":"a","namespace":"n","resource":"pods"}}`,
			asks("a", nil, "get", "", "pods", "m"), false},
		"empty namespace": {v + `{"user":"a","resource":"nodes"}}`,
			asks("a", nil, "get", "", "nodes", ""), true},
		"a path": {v + `{"user":"a","nonResourcePath":"/version"}}`,
			path("a", "get", "/version"), true},
		"path below": {v + `{"user":"a","nonResourcePath":"/api/*"}}`,
			path("a", "get", "/api/v1"), true},
		"path with a common prefix": {v + `{"user":"a","nonResourcePath":"/api/*"}}`,
			path("a", "get", "/apis"), false},
		"any path": {
			v + `{"group":"system:authenticated","readonly":true,"nonResourcePath":"*"}}`, path("a", "get", "/x"), true},
		"path policy, resource request": {v + `{"user":"a","nonResourcePath":"*"}}`,
			asks("a", nil, "get", "", "pods", ""), false},
		"resource policy, path request": {
			v + `{"user":"a","namespace":"*","resource":"*","apiGroup":"*"}}`, path("a", "get", "/x"), false},
		"old format: all": {`{"user":"a"}`,
			asks("a", nil, "create", "apps", "deployments", "x"), true},
		"old format: named user": {
			`{"apiVersion":"abac.authorization.kubernetes.io/v0","kind":"Policy","user":"a"}`,
			asks("a", nil, "create", "apps", "deployments", "x"), true},
		"old format: with a kind": {`{"kind":"Policy","user":"a"}`,
			asks("a", nil, "create", "apps", "deployments", "x"), true},
		"case of names": {`{"User":"a"}`,
			asks("a", nil, "create", "apps", "deployments", "x"), false},
		"old format: paths":        {`{"user":"a"}`, path("a", "get", "/x"), true},
		"old format: one resource": {`{"user":"a","resource":"pods"}`, path("a", "get", "/x"), false},
		"old format: no user named": {`{"resource":"pods","readonly":true}`,
			asks("b", authenticated, "list", "", "pods", "x"), true},
		"old format: anonymous request": {`{"resource":"pods"}`, asks("b", nil, "list", "", "pods", "x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := load(t, "# a comment\n\n"+test.policy+"\n")
			if err != nil {
				t.Fatal(err)
			}
			got, reason, err := p.Authorize(t.Context(), test.asks)
			want, wantReason := authorizer.DecisionAllow, ""
			if !test.want {
				want, wantReason = authorizer.DecisionNoOpinion, "No policy matched."
			}
			if got != want || reason != wantReason || err != nil {
				t.Errorf("got %v %q %v", got, reason, err)
			}
		})
	}
}

func TestRulesFor(t *testing.T) {
	p, err := load(t, `{"user":"a","namespace":"n","resource":"pods","readonly":true}`+"\n"+`{"user":"a"}`+"\n"+
		`{"user":"b"}`)
	if err != nil {
		t.Fatal(err)
	}
	resources, paths, incomplete, err := p.RulesFor(t.Context(), &user.DefaultInfo{Name: "a"}, "n")
	if len(resources) != 2 || len(paths) != 1 || incomplete || err != nil ||
		strings.Join(resources[0].GetVerbs(), ",") != "get,list,watch" {
		t.Errorf("%v %v %v %v", resources, paths, incomplete, err)
	}
	if resources, _, _, _ := p.RulesFor(t.Context(), &user.DefaultInfo{Name: "a"}, "m"); len(resources) != 1 {
		t.Errorf("%v", resources)
	}
}

func TestLoadErrors(t *testing.T) {
	for _, line := range []string{"nonsense", `{"apiVersion":"x/v1","kind":"Policy"}`, `{"user":5}`} {
		if _, err := load(t, "{}\n"+line); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// FuzzParse checks that the parser does not panic, and that no policy matches a user without a name
// and groups.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"a"}}`))
	f.Add([]byte(`{"user":"*","namespace":"*"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		p, err := parse(line)
		if err != nil {
			return
		}
		nobody := authorizer.AttributesRecord{User: &user.DefaultInfo{}, Verb: "create", Resource: "pods",
			ResourceRequest: true}
		if d, _, _ := (Policies{p}).Authorize(t.Context(), nobody); d == authorizer.DecisionAllow {
			t.Errorf("%s allows nobody to write", line)
		}
	})
}
