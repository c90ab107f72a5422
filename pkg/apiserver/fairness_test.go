// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

func answerTo(t *testing.T, cfg *rest.Config, path string) (*http.Response, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func poll(t *testing.T, what string, done func(context.Context) bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 3*time.Minute, true,
		func(ctx context.Context) (bool, error) { return done(ctx), nil }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// makeAdmin gives a user all rights without the group system:masters.
func makeAdmin(t *testing.T, s *testserver.Server, name string) {
	t.Helper()
	if _, err := s.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg := s.UserConfig(t, name)
	poll(t, name+" may do everything", func(context.Context) bool {
		resp, _ := answerTo(t, cfg, "/api/v1/namespaces/default/configmaps")
		return resp.StatusCode == http.StatusOK
	})
}

// TestFairness checks that a FlowSchema selects the priority level of requests, and that a full
// level rejects requests.
func TestFairness(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	api := s.Client.FlowcontrolV1()
	level := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "bobs"},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: ptr.To(int32(1)),
				LimitResponse:            flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		}}
	flow := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "bobs"}, Spec: flowcontrolv1.FlowSchemaSpec{
		MatchingPrecedence: 100, PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "bobs"},
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects: []flowcontrolv1.Subject{
				{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: "bob"}}},
			NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{
				{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"},
					Namespaces: []string{"*"}, ClusterScope: true}},
		}},
	}}
	flow, err := api.FlowSchemas().Create(t.Context(), flow, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dangling := func(want flowcontrolv1.ConditionStatus, reason string) {
		t.Helper()
		poll(t, reason, func(ctx context.Context) bool {
			got, err := api.FlowSchemas().Get(ctx, "bobs", metav1.GetOptions{})
			return err == nil && len(got.Status.Conditions) == 1 && got.Status.Conditions[0].Status == want &&
				got.Status.Conditions[0].Reason == reason
		})
	}
	dangling(flowcontrolv1.ConditionTrue, "NotFound")
	if level, err = api.PriorityLevelConfigurations().Create(t.Context(), level, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dangling(flowcontrolv1.ConditionFalse, "Found")
	bob := s.UserConfig(t, "bob")
	poll(t, "requests are classified", func(context.Context) bool {
		resp, _ := answerTo(t, bob, "/version")
		return resp.StatusCode == http.StatusOK && resp.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") == string(flow.UID) &&
			resp.Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid") == string(level.UID)
	})
	level.Spec.Limited.NominalConcurrencyShares = ptr.To(int32(0))
	level.Spec.Limited.LendablePercent, level.Spec.Limited.BorrowingLimitPercent = ptr.To(int32(0)), ptr.To(int32(0))
	if _, err := api.PriorityLevelConfigurations().Update(t.Context(), level, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A level always has at least one seat, so one request is served. The slow request below takes
	// the seat and stays in progress.
	makeAdmin(t, s, "bob")
	client, err := rest.HTTPClientFor(bob)
	if err != nil {
		t.Fatal(err)
	}
	// The request of the update above may still hold the seat. Then the slow request is rejected,
	// and the poll below sends it again.
	send := func() (*io.PipeWriter, <-chan int) {
		body, more := io.Pipe()
		slow, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			bob.Host+"/api/v1/namespaces/default/configmaps", body)
		if err != nil {
			t.Fatal(err)
		}
		slow.Header.Set("Content-Type", "application/json")
		ended := make(chan int, 1)
		go func() {
			resp, err := client.Do(slow)
			if err != nil {
				ended <- 0
				return
			}
			defer resp.Body.Close()
			ended <- resp.StatusCode
		}()
		return more, ended
	}
	more, ended := send()
	defer func() { _ = more.Close() }()
	poll(t, "the slow request has a seat", func(context.Context) bool {
		select {
		case <-ended:
			_ = more.Close()
			more, ended = send()
		default:
		}
		_, body := answerTo(t, s.Config, "/debug/api_priority_and_fairness/dump_requests?includeRequestDetails=1")
		return strings.Contains(body, "/api/v1/namespaces/default/configmaps")
	})
	poll(t, "requests are refused", func(context.Context) bool {
		resp, body := answerTo(t, bob, "/version")
		return resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "" &&
			body == "Too many requests, please try again later.\n"
	})
	if resp, _ := answerTo(t, bob, "/api/v1/namespaces?watch=true"); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a watch was answered with %d", resp.StatusCode)
	}
	if resp, _ := answerTo(t, s.Config, "/version"); resp.StatusCode != http.StatusOK {
		t.Errorf("an administrator was answered with %d", resp.StatusCode)
	}
	for dump, want := range map[string][]string{
		"dump_priority_levels": {"PriorityLevelName, ", "bobs, ", "exempt, "}, "dump_queues": {"PriorityLevelName, "},
		"dump_requests?includeRequestDetails=1": {"PriorityLevelName, FlowSchemaName, ", "bob, ",
			"/api/v1/namespaces/default/configmaps"},
	} {
		_, body := answerTo(t, s.Config, "/debug/api_priority_and_fairness/"+dump)
		for _, part := range want {
			if !strings.Contains(body, part) {
				t.Errorf("%s has no %q:\n%s", dump, part, body)
			}
		}
	}
	if resp, _ := answerTo(t, s.UserConfig(t, "eve"),
		"/debug/api_priority_and_fairness/dump_requests"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a user without rights is answered with %d", resp.StatusCode)
	}
	if _, err := io.WriteString(more, `{"metadata":{"name":"slow"}}`); err != nil {
		t.Fatal(err)
	}
	_ = more.Close()
	if code := <-ended; code != http.StatusCreated {
		t.Errorf("the slow request was answered with %d", code)
	}
	poll(t, "refused requests are counted", func(context.Context) bool {
		_, metrics := answerTo(t, s.Config, "/metrics")
		return strings.Contains(metrics, `apiserver_flowcontrol_rejected_requests_total{flow_schema="bobs",`+
			`priority_level="bobs",reason="concurrency-limit"}`)
	})
}

// TestFairnessOfWatches checks that a watch frees its seat once it has begun.
func TestFairnessOfWatches(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	makeAdmin(t, s, "bob")
	bob := s.UserConfig(t, "bob")
	// Start more watches than there are seats at the same time.
	client, err := rest.HTTPClientFor(bob)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 700 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			bob.Host+"/api/v1/namespaces/default/configmaps?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("watch %d: %d", i, resp.StatusCode)
		}
	}
}
