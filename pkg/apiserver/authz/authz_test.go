// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/rbac"
)

// hook is a webhook that allows requests of alice, denies requests of mallory, and has no opinion
// on those of other users. While ill is set, it returns an error.
type hook struct {
	kubeconfig string
	asked      atomic.Int64
	ill        atomic.Bool
}

func startHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{kubeconfig: filepath.Join(t.TempDir(), "hook.kubeconfig")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.asked.Add(1)
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || h.ill.Load() {
			http.Error(w, "ill", http.StatusBadRequest)
			return
		}
		review.Status.Allowed, review.Status.Denied = review.Spec.User == "alice", review.Spec.User == "mallory"
		review.Status.Reason = "the hook says so"
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	writeFile(t, h.kubeconfig, fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: "+
		"[{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u}]\nclusters: [{name: c, cluster: "+
		"{server: %q}}]\n", server.URL))
	return h
}

func writeFile(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".next", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".next", file); err != nil {
		t.Fatal(err)
	}
}

const header = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"

func (h *hook) entry(name, policy, condition string) string {
	e := fmt.Sprintf("- type: Webhook\n  name: %s\n  webhook:\n    timeout: 30s\n    authorizedTTL: 1m\n    "+
		"unauthorizedTTL: 1m\n    subjectAccessReviewVersion: v1\n    "+
		"matchConditionSubjectAccessReviewVersion: v1\n    failurePolicy: %s\n    connectionInfo: "+
		"{type: KubeConfigFile, kubeConfigFile: %s}\n", name, policy, h.kubeconfig)
	if condition != "" {
		e += "    matchConditions: [{expression: \"" + condition + "\"}]\n"
	}
	return e
}

const rbacEntry = "- {type: RBAC, name: rbac}\n"

func newChain(t *testing.T, cfg config.Authorization, modes ...string) *Chain {
	t.Helper()
	c, err := Load(Config{Authorization: cfg, Modes: modes, ServerID: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	index := rbac.NewIndex()
	index.SetRole("", "reader",
		[]rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}})
	index.SetBinding("", "readers", rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"},
		[]rbacv1.Subject{{Kind: "User", Name: "bob"}, {Kind: "User", Name: "mallory"}})
	if err := c.Build(map[string]Authorizer{config.ModeRBAC: index}, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func decide(t *testing.T, c *Chain, name, resource string, groups ...string) authorizer.Decision {
	t.Helper()
	d, _, _ := c.Authorize(t.Context(), authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: name, Groups: groups}, Verb: "get", APIVersion: "v1", Resource: resource,
		Namespace: "n", ResourceRequest: true,
	})
	return d
}

// TestNotLoaded checks that requests wait while caches are not loaded. If the caches are not loaded
// in time, the result is an error and not a denial.
func TestNotLoaded(t *testing.T) {
	clk := testclock.NewFakeClock(time.Now())
	c, err := Load(Config{Modes: []string{config.ModeRBAC}, ServerID: "test", Clock: clk,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	index, loaded := rbac.NewIndex(), make(chan struct{})
	if err := c.Build(map[string]Authorizer{config.ModeRBAC: index}, loaded); err != nil {
		t.Fatal(err)
	}
	if d := decide(t, c, "root", "pods", user.SystemPrivilegedGroup); d != authorizer.DecisionAllow {
		t.Errorf("administrator, before anything is loaded: %v", d)
	}
	ask := func() <-chan error {
		done := make(chan error, 1)
		go func() {
			d, _, err := c.Authorize(context.Background(), authorizer.AttributesRecord{
				User: &user.DefaultInfo{Name: "bob"}, Verb: "get", APIVersion: "v1", Resource: "pods",
				Namespace: "n", ResourceRequest: true,
			})
			if err == nil && d != authorizer.DecisionAllow {
				err = fmt.Errorf("decision %v", d)
			}
			done <- err
		}()
		for !clk.HasWaiters() {
			runtime.Gosched()
		}
		return done
	}
	late := ask()
	clk.Step(patience)
	if err := <-late; !errors.Is(err, errNotLoaded) {
		t.Errorf("after %v: %v", patience, err)
	}
	early := ask()
	index.SetRole("", "reader",
		[]rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}})
	index.SetBinding("", "readers", rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"},
		[]rbacv1.Subject{{Kind: "User", Name: "bob"}})
	close(loaded)
	if err := <-early; err != nil {
		t.Errorf("once roles are loaded: %v", err)
	}
	if d := decide(t, c, "eve", "pods"); d != authorizer.DecisionNoOpinion {
		t.Errorf("somebody without a role: %v", d)
	}
}

func TestChain(t *testing.T) {
	h := startHook(t)
	file := filepath.Join(t.TempDir(), "authorization.yaml")
	writeFile(t, file, header+h.entry("hook", "Deny", "request.resourceAttributes.resource == 'pods'")+rbacEntry)
	c := newChain(t, config.Authorization{File: file})
	for _, test := range []struct {
		name, resource string
		groups         []string
		want           authorizer.Decision
	}{
		{"alice", "pods", nil, authorizer.DecisionAllow},        // the webhook allows the request
		{"alice", "secrets", nil, authorizer.DecisionNoOpinion}, // the match conditions exclude secrets
		{"bob", "pods", nil, authorizer.DecisionAllow},          // the webhook has no opinion, and RBAC allows the request
		{"mallory", "pods", nil, authorizer.DecisionDeny},       // the webhook denies the request, and RBAC is not consulted
		{"eve", "pods", nil, authorizer.DecisionNoOpinion},
		// Members of system:masters are allowed without calling the webhook.
		{"mallory", "pods", []string{"system:masters"}, authorizer.DecisionAllow},
	} {
		if got := decide(t, c, test.name, test.resource, test.groups...); got != test.want {
			t.Errorf("%s %s %v: %v, want %v", test.name, test.resource, test.groups, got, test.want)
		}
	}
	asked := h.asked.Load()
	if decide(t, c, "alice", "pods"); h.asked.Load() != asked {
		t.Error("an answer is not believed for a while")
	}
	h.ill.Store(true)
	if got := decide(t, c, "bob", "pods", "again"); got != authorizer.DecisionDeny {
		t.Errorf("with failure policy Deny: %v", got)
	}
	c = newChain(t, config.Authorization{Webhook: config.AccessWebhook{ConfigFile: h.kubeconfig,
		Version: "v1"}}, config.ModeWebhook, config.ModeRBAC)
	if got := decide(t, c, "bob", "pods"); got != authorizer.DecisionAllow {
		t.Errorf("by flags, with an ill webhook: %v", got)
	}
	h.ill.Store(false)
	if got := decide(t, c, "alice", "secrets"); got != authorizer.DecisionAllow {
		t.Errorf("by flags: %v", got)
	}
}

// TestReload checks that a changed file is applied and that an invalid file is ignored.
func TestReload(t *testing.T) {
	h := startHook(t)
	file := filepath.Join(t.TempDir(), "authorization.yaml")
	writeFile(t, file, header+rbacEntry)
	c := newChain(t, config.Authorization{File: file})
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(t.Context())
	}()
	t.Cleanup(func() { <-done })
	until := func(name string, want authorizer.Decision) {
		t.Helper()
		for deadline := time.Now().Add(3 * time.Minute); decide(t, c, name,
			"pods") != want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v, want %v", name, decide(t, c, name, "pods"), want)
			}
		}
	}
	until("alice", authorizer.DecisionNoOpinion)
	writeFile(t, file, header+h.entry("hook", "Deny", ""))
	writeFile(t, file, header+h.entry("hook", "Deny", "")+rbacEntry)
	until("alice", authorizer.DecisionAllow)
	until("bob", authorizer.DecisionAllow)
	writeFile(t, file, header+rbacEntry)
	until("alice", authorizer.DecisionNoOpinion)
}

func TestWrong(t *testing.T) {
	h := startHook(t)
	file := filepath.Join(t.TempDir(), "authorization.yaml")
	writeFile(t, file, header+rbacEntry)
	running := newChain(t, config.Authorization{File: file})
	for want, text := range map[string]string{
		"missing required types: [RBAC]":            header + h.entry("hook", "Deny", ""),
		"expected name rbac for authorizer RBAC":    header + "- {type: RBAC, name: roles}\n",
		"Unsupported value: \"Guess\"":              header + "- {type: Guess, name: guess}\n" + rbacEntry,
		"Duplicate value":                           header + rbacEntry + rbacEntry,
		"at least one authorization mode":           strings.Replace(header, "authorizers:\n", "", 1),
		"undeclared reference to 'nothing'":         header + h.entry("hook", "Deny", "nothing") + rbacEntry,
		"failed to load AuthorizationConfiguration": "nonsense",
		"Unsupported value: \"Perhaps\"":            header + h.entry("hook", "Perhaps", "") + rbacEntry,
		"subjectAccessReviewVersion: Unsupported valu": header + strings.Replace(h.entry("hook", "Deny", ""),
			"subjectAccessReviewVersion: v1\n", "subjectAccessReviewVersion: v7\n", 1) + rbacEntry,
	} {
		if _, err := running.parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	next, err := running.parse(header + "- {type: Node, name: node}\n" + rbacEntry)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := running.build(next); err == nil ||
		!strings.Contains(err.Error(), "not allowed if it was not enabled at initial server startup") {
		t.Errorf("a new authorizer within the server: %v", err)
	}
}
