// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"keelson.dev/apiserver/store/kv"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// withTaintRules starts a server that serves DeviceTaintRules in all versions.
func withTaintRules(t *testing.T) *testserver.Server {
	t.Helper()
	return testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.RuntimeConfig = map[string]bool{"resource.k8s.io/v1alpha3": true, "resource.k8s.io/v1beta2": true}
	}})
}

// TestAlphaTaintRules checks that a rule that was created in v1alpha3 is stored in v1beta2, can be read
// and changed in all versions, and that the server records in which version a client has set a field.
func TestAlphaTaintRules(t *testing.T) {
	s := withTaintRules(t)
	ctx, alpha := t.Context(), s.Client.ResourceV1alpha3().DeviceTaintRules()
	rule := &resourcev1alpha3.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	if _, err := alpha.Create(ctx, rule, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("without a taint: %v, want invalid", err)
	}
	pool := "p"
	rule.Spec = resourcev1alpha3.DeviceTaintRuleSpec{DeviceSelector: &resourcev1alpha3.DeviceTaintSelector{Pool: &pool},
		Taint: resourcev1alpha3.DeviceTaint{Key: "example.com/k", Effect: resourcev1alpha3.DeviceTaintEffectNoSchedule}}
	rule, err := alpha.Create(ctx, rule, metav1.CreateOptions{FieldManager: "creator"})
	if err != nil {
		t.Fatal(err)
	}
	if rule.Spec.Taint.TimeAdded == nil || rule.Generation != 1 || *rule.Spec.DeviceSelector.Pool != pool {
		t.Errorf("created %+v, want a time and generation 1", rule)
	}
	items, err := s.KV.Range(ctx, kv.RangeOptions{Prefix: "/registry/devicetaintrules/"})
	if err != nil || len(items.Items) != 1 ||
		!strings.Contains(string(items.Items[0].Value), "resource.k8s.io/v1beta2\x12") {
		t.Errorf("stored %v, %v, want v1beta2", items, err)
	}
	stable, err := s.Client.ResourceV1().DeviceTaintRules().Get(ctx, "r", metav1.GetOptions{})
	if err != nil || stable.Spec.Taint.Key != "example.com/k" || *stable.Spec.DeviceSelector.Pool != pool {
		t.Fatalf("in v1: %+v, %v", stable, err)
	}
	stable.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	if _, err := s.Client.ResourceV1().DeviceTaintRules().Update(ctx, stable,
		metav1.UpdateOptions{FieldManager: "other"}); err != nil {
		t.Fatal(err)
	}
	rule, err = alpha.Patch(ctx, "r", types.ApplyYAMLPatchType, []byte(`{"apiVersion":"resource.k8s.io/v1alpha3",`+
		`"kind":"DeviceTaintRule","metadata":{"name":"r"},"spec":{"taint":{"key":"example.com/k","value":"v",`+
		`"effect":"NoExecute"}}}`), metav1.PatchOptions{FieldManager: "applier"})
	if err != nil || rule.Spec.Taint.Value != "v" ||
		rule.Spec.Taint.Effect != resourcev1alpha3.DeviceTaintEffectNoExecute {
		t.Fatalf("applied: %+v, %v", rule, err)
	}
	managers := map[string]string{}
	for _, entry := range rule.ManagedFields {
		managers[entry.Manager] = entry.APIVersion + " " + string(entry.FieldsV1.Raw)
	}
	for manager, want := range map[string][]string{
		"creator": {"resource.k8s.io/v1alpha3 ", `"f:pool":{}`},
		"other":   {"resource.k8s.io/v1 ", `"f:effect":{}`},
		"applier": {"resource.k8s.io/v1alpha3 ", `"f:effect":{}`, `"f:value":{}`},
	} {
		for _, part := range want {
			if !strings.Contains(managers[manager], part) {
				t.Errorf("%s owns %q, want %s", manager, managers[manager], part)
			}
		}
	}
	rule.Status.Conditions = []metav1.Condition{{Type: "T", Status: metav1.ConditionTrue, Reason: "R",
		LastTransitionTime: metav1.Now()}}
	if rule, err = alpha.UpdateStatus(ctx, rule, metav1.UpdateOptions{}); err != nil || len(rule.Status.Conditions) != 1 {
		t.Errorf("status %+v, %v", rule, err)
	}
	w, err := alpha.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if seen, ok := (<-w.ResultChan()).Object.(*resourcev1alpha3.DeviceTaintRule); !ok || seen.Spec.Taint.Value != "v" {
		t.Errorf("watched %+v", seen)
	}
}

// TestTaintRulesByVersion checks how the versions of rules differ: only in the older versions, an
// update needs no resourceVersion and a delete returns the rule, and only v1alpha3 is deprecated.
func TestTaintRulesByVersion(t *testing.T) {
	s := withTaintRules(t)
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"metadata":{"name":"r"},"spec":{"taint":{"key":"example.com/k","effect":"NoSchedule"}}}`
	for version, tc := range map[string]struct {
		update           int
		deleted, warning string
	}{
		"v1":      {422, "Status", ""},
		"v1beta2": {200, "DeviceTaintRule", ""},
		"v1alpha3": {200, "DeviceTaintRule", `299 - "resource.k8s.io/v1alpha3 DeviceTaintRule is deprecated in v1.36+, ` +
			`unavailable in v1.39+"`},
	} {
		collection := s.URL + "/apis/resource.k8s.io/" + version + "/devicetaintrules"
		send := func(method, path, accept, body string, code int) metav1.Table {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), method, collection+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept", accept)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var answer metav1.Table
			if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != code {
				t.Errorf("%s: %s: %v, status %d, want %d", version, method, err, resp.StatusCode, code)
			}
			if got := resp.Header.Get("Warning"); got != tc.warning {
				t.Errorf("%s: %s: warning %q, want %q", version, method, got, tc.warning)
			}
			return answer
		}
		const plain = "application/json"
		send("POST", "", plain, body, 201)
		send("PUT", "/r", plain, body, tc.update)
		table := send("GET", "/r", "application/json;as=Table;v=v1;g=meta.k8s.io", "", 200)
		if len(table.Rows) != 1 || len(table.Rows[0].Cells) != 6 || table.Rows[0].Cells[1] != "example.com/k" {
			t.Errorf("%s: table %v", version, table.Rows)
		}
		if got := send("DELETE", "/r", plain, "", 200).Kind; got != tc.deleted {
			t.Errorf("%s: a delete returns a %s, want a %s", version, got, tc.deleted)
		}
		_, doc := answerTo(t, s.Config, "/openapi/v3/apis/resource.k8s.io/"+version)
		if kind := "io.k8s.api.resource." + version + ".DeviceTaintRuleSpec"; !strings.Contains(doc, `"`+kind+`":`) ||
			strings.Contains(doc, "ResourcePoolStatusRequest") {
			t.Errorf("the OpenAPI document of %s has no %s, or a kind that is not served", version, kind)
		}
	}
}

// TestRemovedRelease checks that the metrics and the audit log say which release removes a deprecated
// version.
func TestRemovedRelease(t *testing.T) {
	dir := t.TempDir()
	log, policy := filepath.Join(dir, "audit.log"), filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"v1alpha3/devicetaintrules": "1.39", "v1beta2/devicetaintrules": "",
		"v1beta2/resourceslices": "1.39", "v1beta1/resourceslices": "1.38"}
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.RuntimeConfig = map[string]bool{"api/all": true}
		c.Audit.PolicyFile, c.Audit.Log.Path = policy, log
	}})
	for path, release := range want {
		if resp, _ := answerTo(t, s.Config, "/apis/resource.k8s.io/"+path); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: status %d", path, resp.StatusCode)
		}
		version, resource, _ := strings.Cut(path, "/")
		line := fmt.Sprintf("apiserver_requested_deprecated_apis{group=%q,removed_release=%q,resource=%q,subresource=%q,"+
			"version=%q} 1", "resource.k8s.io", release, resource, "", version)
		if _, metrics := answerTo(t, s.Config, "/metrics"); strings.Contains(metrics, line) != (release != "") {
			t.Errorf("%s: the metrics have no %s", path, line)
		}
	}
	s.Stop(t)
	for _, e := range auditEvents(t, log) {
		path := strings.TrimPrefix(e.RequestURI, "/apis/resource.k8s.io/")
		release, asked := want[path]
		if !asked || e.Stage != auditv1.StageResponseComplete {
			continue
		}
		if got := e.Annotations["k8s.io/removed-release"]; got != release {
			t.Errorf("%s: the audit event says removed in %q, want %q", path, got, release)
		}
		delete(want, path)
	}
	if len(want) > 0 {
		t.Errorf("no audit events of %v", want)
	}
}
