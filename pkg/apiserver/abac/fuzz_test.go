// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package abac

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// documented decides a request as Kubernetes' documentation of version v1beta1 describes it. A
// property that is not set matches only an attribute that is not set. "*" matches everything.
func documented(spec map[string]any, a authorizer.Attributes) bool {
	text := func(key string) string { s, _ := spec[key].(string); return s }
	who, group := text("user"), text("group")
	switch {
	case who == "*" || group == "*":
		if !slices.Contains(a.GetUser().GetGroups(), "system:authenticated") {
			return false
		}
	case who == "" && group == "":
		return false
	case who != "" && who != a.GetUser().GetName(), group != "" && !slices.Contains(a.GetUser().GetGroups(), group):
		return false
	}
	if spec["readonly"] == true && !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
		return false
	}
	if a.IsResourceRequest() {
		for key, value := range map[string]string{"namespace": a.GetNamespace(), "resource": a.GetResource(),
			"apiGroup": a.GetAPIGroup()} {
			if text(key) != "*" && text(key) != value {
				return false
			}
		}
		return true
	}
	path := text("nonResourcePath")
	return path == a.GetPath() || strings.HasSuffix(path, "*") &&
		strings.HasPrefix(a.GetPath(), strings.TrimRight(path, "*"))
}

// FuzzAuthorize compares decisions about random policies and requests with the results of the
// function documented.
func FuzzAuthorize(f *testing.F) {
	f.Add("alice", "", false, "ns", "pods", "", "", "alice", "g", "get", "ns", "pods", "", "", true)
	f.Add("", "devs", true, "*", "*", "*", "/api/*", "bob", "devs", "list", "ns", "pods", "apps", "/api/v1", false)
	f.Add("*", "", false, "*", "*", "*", "*", "bob", "system:authenticated", "delete", "ns", "pods", "apps", "/x", true)
	f.Add("", "", false, "", "", "", "", "", "", "", "", "", "", "", false)
	f.Fuzz(func(t *testing.T, who, group string, readonly bool, namespace, resource, apiGroup, path, name,
		member, verb, ns, res, api, at string, isResource bool) {
		spec := map[string]any{
			"user": who, "group": group, "readonly": readonly,
			"namespace": namespace, "resource": resource, "apiGroup": apiGroup, "nonResourcePath": path,
		}
		line, err := json.Marshal(map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		// Encoding in JSON replaces invalid UTF-8, so decode the policy again to get what the file has.
		var doc struct{ Spec map[string]any }
		if err := json.Unmarshal(line, &doc); err != nil {
			t.Fatal(err)
		}
		p, err := parse(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name, Groups: []string{member}},
			Verb: verb, ResourceRequest: isResource}
		if isResource {
			a.Namespace, a.Resource, a.APIGroup = ns, res, api
		} else {
			a.Path = at
		}
		decision, _, err := (Policies{p}).Authorize(t.Context(), a)
		if want := documented(doc.Spec, a); err != nil || (decision == authorizer.DecisionAllow) != want {
			t.Errorf("%s for %+v by %+v: %v %v, documented %t", line, a, a.User, decision, err, want)
		}
	})
}
