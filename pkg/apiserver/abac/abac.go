// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package abac authorizes requests by a policy file with one JSON object per line. A line is in
// version abac.authorization.kubernetes.io/v1beta1, or in the older format without a version. A
// policy allows requests. If no policy matches a request, the next authorizer decides. The file is
// read once, at the start.
package abac

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/json"
)

const (
	firstVersion = "abac.authorization.kubernetes.io/v0"
	apiVersion   = "abac.authorization.kubernetes.io/v1beta1"
	kind         = "Policy"
	all          = "*"
	maxLine      = 1 << 20
)

// policy allows requests of its subjects (User, Group) that match its other fields. An empty field
// matches nothing, and "*" matches everything.
type policy struct {
	User            string `json:"user"`
	Group           string `json:"group"`
	Readonly        bool   `json:"readonly"`
	APIGroup        string `json:"apiGroup"`
	Resource        string `json:"resource"`
	Namespace       string `json:"namespace"`
	NonResourcePath string `json:"nonResourcePath"`
}

// Policies are the policies of a file. They are immutable.
type Policies []policy

// Load reads a file. Empty lines and lines that begin with # are ignored.
func Load(path string) (Policies, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the file is only read, so an error of Close does not matter
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	var out Policies
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		p, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("error reading policy file %s, line %d: %s: %w", path, n, line, err)
		}
		out = append(out, p)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("error reading policy file %s: %w", path, err)
	}
	return out, nil
}

func parse(line []byte) (policy, error) {
	var p struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       policy `json:"spec"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(line, &p); err != nil {
		return policy{}, err
	}
	switch {
	case (p.APIVersion == "" || p.APIVersion == firstVersion) && (p.Kind == "" || p.Kind == kind):
		return parseFirst(line)
	case p.APIVersion != apiVersion || p.Kind != kind:
		return policy{}, fmt.Errorf("no kind %q is registered for version %q", p.Kind, p.APIVersion)
	}
	p.Spec.nameEverybody()
	return p.Spec, nil
}

// parseFirst parses a line in the older format, in which a missing field matches everything.
func parseFirst(line []byte) (policy, error) {
	var p policy
	if err := json.UnmarshalCaseSensitivePreserveInts(line, &p); err != nil {
		return policy{}, err
	}
	p.APIGroup, p.NonResourcePath = all, ""
	if p.User == "" && p.Group == "" {
		p.Group = user.AllAuthenticated
	}
	if p.Namespace == "" && p.Resource == "" {
		p.NonResourcePath = all
	}
	if p.Namespace == "" {
		p.Namespace = all
	}
	if p.Resource == "" {
		p.Resource = all
	}
	p.nameEverybody()
	return p, nil
}

// nameEverybody replaces the subject "*" by the group system:authenticated.
func (p *policy) nameEverybody() {
	if p.User == all || p.Group == all {
		p.User, p.Group = "", user.AllAuthenticated
	}
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (ps Policies) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	for i := range ps {
		if ps[i].of(a.GetUser()) && (a.IsReadOnly() || !ps[i].Readonly) && ps[i].covers(a) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "No policy matched.", nil
}

// of reports whether u is a subject of the policy. If the policy has a user and a group, u must
// match both.
func (p *policy) of(u user.Info) bool {
	if u == nil || p.User == "" && p.Group == "" {
		return false
	}
	return (p.User == "" || p.User == u.GetName()) && (p.Group == "" || slices.Contains(u.GetGroups(), p.Group))
}

func (p *policy) covers(a authorizer.Attributes) bool {
	is := func(rule, value string) bool { return rule == all || rule == value }
	if a.IsResourceRequest() {
		return is(p.Namespace, a.GetNamespace()) && is(p.Resource, a.GetResource()) && is(p.APIGroup, a.GetAPIGroup())
	}
	if is(p.NonResourcePath, a.GetPath()) {
		return true
	}
	prefix, ok := strings.CutSuffix(p.NonResourcePath, all)
	return ok && strings.HasPrefix(a.GetPath(), strings.TrimRight(prefix, all))
}

// RulesFor implements authorizer.RuleResolver.
func (ps Policies) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo,
	[]authorizer.NonResourceRuleInfo, bool, error) {
	var resources []authorizer.ResourceRuleInfo
	var paths []authorizer.NonResourceRuleInfo
	for i := range ps {
		p := &ps[i]
		if !p.of(u) || p.Namespace != all && p.Namespace != namespace {
			continue
		}
		verbs := []string{all}
		if p.Readonly {
			verbs = []string{"get", "list", "watch"}
		}
		if p.Resource != "" {
			resources = append(resources,
				&authorizer.DefaultResourceRuleInfo{Verbs: verbs, APIGroups: []string{p.APIGroup}, Resources: []string{p.Resource}})
		}
		if p.NonResourcePath != "" {
			paths = append(paths,
				&authorizer.DefaultNonResourceRuleInfo{Verbs: verbs, NonResourceURLs: []string{p.NonResourcePath}})
		}
	}
	return resources, paths, false, nil
}
