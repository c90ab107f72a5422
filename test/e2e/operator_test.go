// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// operatorImage is an image archive with the program of test/e2e/operator.
const operatorImage = "../../.build/e2e-images/operator.tar"

// TestOperator installs an operator and uses its custom resource as users would. Meanwhile it also
// installs a webhook for pods and leases that always fails, and deletes the operator's pod.
func TestOperator(t *testing.T) {
	image, err := filepath.Abs(operatorImage)
	if err != nil {
		t.Fatal(err)
	}
	ctl(t, "cluster", "load", "--name", clusterName, "--data-dir", filepath.Join(shared.dir, "data"), image)
	ctl(t, "apply", "-f", "testdata/operator.yaml")
	t.Cleanup(func() { uninstallOperator(t) })
	ctl(t, "-n", "operator", "rollout", "status", "deployment", "operator")
	ns := namespace(t, "sites")
	n := func(args ...string) []string { return append([]string{"-n", ns}, args...) }
	get := func(what, path string) string {
		return ctl(t, n("get", what, "-o", "jsonpath={"+path+"}")...)
	}
	// Wait until a create succeeds: the API server reaches the webhooks only after the proxy on its
	// host has learnt their endpoints.
	const old = "apiVersion: web.example.com/v1beta1\nkind: Site\nmetadata: {name: a, annotations: {keep: " +
		"'true'}}\nspec: {size: 2}\n"
	eventually(t, "the webhooks answer", func() bool {
		out, err := try(t, old, n("apply", "-f", "-")...)
		if err != nil && !strings.Contains(out, "connect") && !strings.Contains(out, "EOF") {
			t.Fatalf("%v\n%s", err, out)
		}
		return err == nil
	})
	t.Run("converted and defaulted", func(t *testing.T) {
		if got := get("sites.v1.web.example.com/a", ".spec"); got != `{"message":"hello","replicas":2}` {
			t.Errorf("as v1: %s", got)
		}
		if got := get("sites.v1beta1.web.example.com/a", ".spec"); got != `{"size":2,"text":"hello"}` {
			t.Errorf("as v1beta1: %s", got)
		}
	})
	ready := func(replicas string) {
		t.Helper()
		ctl(t, n("wait", "--for=condition=Ready", "site/a", "--timeout=3m")...)
		eventually(t, replicas+" replicas in the status", func() bool { return get("site/a", ".status.ready") == replicas })
	}
	t.Run("status and columns", func(t *testing.T) {
		ready("2")
		if out := ctl(t, n("get", "st")...); !strings.Contains(out, "WANTED   READY   MESSAGE") ||
			!strings.Contains(out, "2        True    hello") {
			t.Error(out)
		}
		if out := ctl(t, n("get", "all")...); !strings.Contains(out, "site.web.example.com/a") ||
			!strings.Contains(out, "deployment.apps/a") {
			t.Error(out)
		}
	})
	t.Run("scale", func(t *testing.T) {
		ctl(t, n("scale", "site/a", "--replicas=3")...)
		ready("3")
	})
	t.Run("refused", func(t *testing.T) {
		for what, args := range map[string][]string{
			`admission webhook "rules.web.example.com" denied the request: a site has at most 5 replicas`: {
				"patch", "site/a", "--type=merge", "-p", `{"spec":{"replicas":6}}`},
			`admission webhook "rules.web.example.com" denied the request: this site is to be kept`: {"delete", "site/a"},
			`Too long: may not be more than 40 bytes`: {
				"patch", "site/a", "--type=merge", "-p", `{"spec":{"message":"` + strings.Repeat("x", 41) + `"}}`},
		} {
			if out, err := try(t, "", n(args...)...); err == nil || !strings.Contains(out, what) {
				t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
	})
	t.Run("dead webhook", func(t *testing.T) { deadWebhook(t, ns) })
	t.Run("finalizer", func(t *testing.T) {
		ctl(t, n("annotate", "site/a", "keep-")...)
		ctl(t, n("delete", "site/a", "--timeout=2m")...)
		eventually(t, "its pods are gone", func() bool { return len(pods(t, ns, "site=a")) == 0 })
	})
}

// everything is a webhook configuration for all pods and leases, including the pod that serves the
// webhook.
const everything = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: everything}
webhooks:
- name: everything.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 2
  clientConfig: {service: {namespace: operator, name: operator, path: /no-such-path}}
  rules:
  - {apiGroups: [""], apiVersions: ["*"], resources: [pods, pods/*], operations: ["*"]}
  - {apiGroups: [coordination.k8s.io], apiVersions: ["*"], resources: [leases], operations: ["*"]}
`

// deadWebhook installs a webhook for all pods and leases that always fails, and deletes the pod that
// serves it. The pod must be replaced and nodes must renew their leases, although users cannot create
// pods meanwhile.
func deadWebhook(t *testing.T, ns string) {
	if out, err := try(t, everything, "apply", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	defer ctl(t, "delete", "validatingwebhookconfiguration", "everything", "--ignore-not-found")
	eventually(t, "the webhook is failing", func() bool {
		return strings.Contains(ctl(t, "webhooks"), "Open") || strings.Contains(ctl(t, "webhooks"), "HalfOpen")
	})
	before := pods(t, "operator", "app=operator")[0].UID
	ctl(t, "-n", "operator", "delete", "pod", "--all", "--timeout=2m")
	eventually(t, "the webhook's pod is back", func() bool {
		list := pods(t, "operator", "app=operator")
		return readyPods(t, "operator", "app=operator") == 1 && list[len(list)-1].UID != before
	})
	out, err := try(t, "", "-n", ns, "run", "unseen", "--image=busybox:1.36", "--restart=Never")
	if err == nil || !strings.Contains(out, `failed calling webhook "everything.example.com"`) {
		t.Errorf("a user creates a pod: %v\n%s", err, out)
	}
	renewed := func() map[string]time.Time {
		list, err := shared.client.CoordinationV1().Leases("kube-node-lease").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]time.Time{}
		for _, l := range list.Items {
			at[l.Name] = l.Spec.RenewTime.Time
		}
		return at
	}
	first := renewed()
	eventually(t, "every node renews its lease", func() bool {
		now, all := renewed(), true
		for name, at := range first {
			all = all && now[name].After(at)
		}
		return all
	})
}

func uninstallOperator(t *testing.T) {
	for _, args := range [][]string{
		{"delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "operator", "--ignore-not-found"},
		{"delete", "crd", "sites.web.example.com", "--ignore-not-found", "--wait=false"},
		{"delete", "namespace", "operator", "--ignore-not-found", "--wait=false"},
		{"delete", "clusterrole,clusterrolebinding", "operator", "--ignore-not-found"},
	} {
		if out, err := shared.command(context.Background(), args...).CombinedOutput(); err != nil {
			t.Logf("%v\n%s", err, out)
		}
	}
}
