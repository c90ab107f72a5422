// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// makeFlow creates a user with all rights, and a priority level and flow schema with the user's
// name. The flow schema assigns the user's requests to the level.
func makeFlow(t *testing.T, s *testserver.Server, name string, borrow *int32) {
	t.Helper()
	api := s.Client.FlowcontrolV1()
	level, err := api.PriorityLevelConfigurations().Create(t.Context(), &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: ptr.To(int32(10)), BorrowingLimitPercent: borrow,
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue,
					Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 1, HandSize: 1, QueueLengthLimit: 50}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.FlowSchemas().Create(t.Context(), &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence: 100, PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{
					{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{
					{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}}},
			}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	makeAdmin(t, s, name)
	cfg := s.UserConfig(t, name)
	poll(t, "requests of "+name+" are classified", func(context.Context) bool {
		resp, _ := answerTo(t, cfg, "/api/v1/namespaces/default/configmaps")
		return resp.Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid") == string(level.UID)
	})
}

// hold keeps n requests in progress until the test ends.
func hold(t *testing.T, cfg *rest.Config, n int) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil { // a request that waited too long is rejected, so send it again
				body, _ := io.Pipe()
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, cfg.Host+"/api/v1/namespaces/default/configmaps", body)
				if err != nil {
					return
				}
				r.Header.Set("Content-Type", "application/json")
				if resp, err := client.Do(r); err == nil {
					_ = resp.Body.Close()
				}
			}
		})
	}
}

// levels returns one column of the debug page dump_priority_levels, by priority level.
func levels(t *testing.T, cfg *rest.Config, column string) map[string]int {
	t.Helper()
	_, dump := answerTo(t, cfg, "/debug/api_priority_and_fairness/dump_priority_levels")
	lines, at, out := strings.Split(dump, "\n"), -1, map[string]int{}
	for i, name := range strings.Split(lines[0], ",") {
		if strings.TrimSpace(name) == column {
			at = i
		}
	}
	if at < 0 {
		t.Fatalf("no %s in %s", column, lines[0])
	}
	for _, line := range lines[1:] {
		if cells := strings.Split(line, ","); len(cells) > at {
			out[strings.TrimSpace(cells[0])], _ = strconv.Atoi(strings.TrimSpace(cells[at]))
		}
	}
	return out
}

// TestBorrowing checks that a busy priority level borrows unused seats of other levels, and that a
// level that may not borrow never uses more than its own seats.
func TestBorrowing(t *testing.T) {
	t.Parallel() // slow: levels are adjusted every 10 s
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.MaxReads, c.MaxWrites = 30, 30 }})
	makeFlow(t, s, "borrower", nil)
	makeFlow(t, s, "modest", ptr.To(int32(0)))
	const requests = 12
	hold(t, s.UserConfig(t, "borrower"), requests)
	hold(t, s.UserConfig(t, "modest"), requests)
	_, metrics := answerTo(t, s.Config, "/metrics")
	nominal := 0
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, `apiserver_flowcontrol_nominal_limit_seats{priority_level="modest"} `); ok {
			nominal, _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
	if nominal == 0 || nominal >= requests {
		t.Fatalf("a level has %d seats of its own", nominal)
	}
	var executing map[string]int
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 3*time.Minute, true,
		func(context.Context) (bool, error) {
			executing = levels(t, s.Config, "ExecutingRequests")
			if executing["modest"] > nominal {
				t.Fatalf("a level that may not borrow has %d requests at once, with %d seats", executing["modest"], nominal)
			}
			return executing["borrower"] == requests && executing["modest"] == nominal, nil
		}); err != nil {
		t.Fatalf("of %d requests each, and %d seats: %v at once", requests, nominal, executing)
	}
}
