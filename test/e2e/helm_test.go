// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHelm installs, upgrades, rolls back, tests and removes a Helm chart. The chart has a CRD,
// hooks, and a lookup of an existing object.
func TestHelm(t *testing.T) {
	ns := namespace(t, "shop")
	t.Cleanup(func() {
		_, _ = shared.command(context.Background(), "delete", "crd", "offers.shop.example.com",
			"--ignore-not-found", "--wait=false").CombinedOutput()
	})
	h := func(args ...string) string { return helm(t, append([]string{"-n", ns}, args...)...) }
	get := func(what, path string) string {
		return ctl(t, "-n", ns, "get", what, "-o", "jsonpath={"+path+"}")
	}
	h("install", "shop", "testdata/chart", "--wait", "--timeout", "3m")
	if got := readyPods(t, ns, "app=shop"); got != 1 {
		t.Errorf("%d pods after helm install --wait", got)
	}
	if got := get("configmap/shop", ".data"); got != `{"greeting":"hello","offers":"true","revision":"1"}` {
		t.Errorf("values %s", got)
	}
	if got := ctl(t, "-n", ns, "logs", "job/prepare"); got != "prepared for 1\n" {
		t.Errorf("the hook said %q", got)
	}
	password := get("secret/shop", ".data.password")

	h("upgrade", "shop", "testdata/chart", "--wait", "--timeout", "3m", "--set", "replicas=2,greeting=welcome")
	if got := get("offer/shop", ".spec.price"); got != "20" || readyPods(t, ns, "app=shop") != 2 {
		t.Errorf("after the upgrade: price %s, %d pods", got, readyPods(t, ns, "app=shop"))
	}
	if got := get("secret/shop", ".data.password"); got != password {
		t.Error("the upgrade did not find the password")
	}
	if got := ctl(t, "-n", ns, "logs", "job/prepare"); got != "prepared for 2\n" {
		t.Errorf("the hook said %q", got)
	}
	if out := h("test", "shop", "--logs", "--timeout", "3m"); !strings.Contains(out, "Phase:          Succeeded") {
		t.Error(out)
	}
	h("rollback", "shop", "1", "--wait", "--timeout", "3m")
	if got := get("configmap/shop", ".data.greeting") + get("offer/shop", ".spec.price"); got != "hello10" {
		t.Errorf("after the rollback: %s", got)
	}
	if out := h("history", "shop"); !strings.Contains(out, "Rollback to 1") {
		t.Error(out)
	}
	h("uninstall", "shop", "--wait", "--timeout", "3m")
	eventually(t, "nothing of the chart is left", func() bool {
		return strings.TrimSpace(ctl(t, "-n", ns, "get", "deployments,offers,services,pods", "-l", "app=shop",
			"-o", "name")) == ""
	})
}

// helm runs the program helm and returns its output.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	program, err := filepath.Abs("../../bin/tools/helm")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+shared.kubeconfig, "HOME="+shared.dir)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out.Bytes())
	}
	return out.String()
}
