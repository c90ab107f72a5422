// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/backup"
	"keelson.dev/keelson/pkg/cluster"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/machine"
	machineconfig "keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/machine/machines"
	"keelson.dev/keelson/pkg/machine/machinestest"
	"keelson.dev/keelson/pkg/provision"
)

// TestUpgradeCommands runs "ctl upgrade" on a cluster without agents.
func TestUpgradeCommands(t *testing.T) {
	s := machinestest.Start(t)
	client, err := machines.NewClient(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	config := "--kubeconfig=" + kubeconfig(t, s, nil)
	fails := func(want string, args ...string) {
		t.Helper()
		out, err := execute(t, append(args, config)...)
		if err == nil || !strings.Contains(out+err.Error(), want) {
			t.Errorf("%v: %q, %v, want %q", args, out, err, want)
		}
	}
	controllertest.Eventually(t, "the resource", func(ctx context.Context) (any, bool) {
		_, err := client.List(ctx)
		return err, err == nil
	})
	fails("no Machine objects", "upgrade", "plan", "2")
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m1"}}
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.SetStatus(t.Context(), "m1", func(m *v1alpha1.Machine) {
		m.Status = v1alpha1.MachineStatus{Release: "1", ControlPlane: true, Heartbeat: &metav1.Time{Time: time.Now()},
			Releases: []v1alpha1.Release{{Name: "1", Kubernetes: "v1.37.2"}, {Name: "2", Kubernetes: "v1.37.3"}}}
	}); err != nil {
		t.Fatal(err)
	}
	if err := backup.Record(t.Context(), s.Client, time.Now()); err != nil { // without one, the plan warns
		t.Fatal(err)
	}
	if out, err := execute(t, "upgrade", "plan", "2", config); err != nil || out != "MACHINE   RELEASE   WANTED\n"+
		"m1        1         2\n" {
		t.Errorf("plan: %q, %v", out, err)
	}
	if out, err := execute(t, "upgrade", "apply", "1", config); err != nil || !strings.HasPrefix(out,
		"All machines run this release.\nThe add-ons are unchanged, because this program belongs to release ") {
		t.Errorf("apply of what runs: %q, %v", out, err)
	}
	fails("release 3 is not installed on m1", "upgrade", "plan", "3")
	own := machine.OwnRelease()
	if err := client.SetStatus(t.Context(), "m1", func(m *v1alpha1.Machine) { m.Status.Release = own }); err != nil {
		t.Fatal(err)
	}
	fails(`run "ctl upgrade apply `+own+`" again: add-ons: configuration of the cluster: configmaps "keelson-config"`,
		"upgrade", "apply", own) // nothing says what the add-ons need
	shareConfiguration(t, s)
	if out, err := execute(t, "upgrade", "apply", own, config); err != nil || out != "All machines run this release.\n"+
		"The add-ons are those of release "+own+".\n" {
		t.Errorf("apply of the add-ons: %q, %v", out, err)
	}
	removeDNS(t, s)
	if out, err := execute(t, "upgrade", "apply", own, config); err != nil || !strings.Contains(out,
		"Another client has changed an add-on, so it was not updated: CoreDNS: its ConfigMap coredns is deleted\n") {
		t.Errorf("apply of the add-ons without CoreDNS: %q, %v", out, err)
	}
	if _, err := s.Client.AppsV1().Deployments("kube-system").Get(t.Context(), "coredns",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("CoreDNS, which an administrator has removed: %v", err)
	}
	fails("--ignore-preflight-errors=Release", "upgrade", "apply", "3")
	fails("nothing to return to", "upgrade", "rollback")
	fails("accepts 1 arg", "upgrade", "plan")
}

// shareConfiguration creates what "ctl init" stores about a cluster.
func shareConfiguration(t *testing.T, s *testserver.Server) {
	t.Helper()
	const shared = "apiVersion: " + machineconfig.APIVersion + "\nkind: " + machineconfig.Kind + "\nclusterName: c\n" +
		"network: {dnsDomain: cluster.local, podCIDRs: [10.244.0.0/16], serviceCIDRs: [10.96.0.0/16]}\n"
	_, err := s.Client.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "keelson-config"}, Data: map[string]string{"config.yaml": shared},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// removeDNS removes CoreDNS, as an administrator does who uses another DNS server.
func removeDNS(t *testing.T, s *testserver.Server) {
	t.Helper()
	err := s.Client.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), "coredns", metav1.DeleteOptions{})
	if err := errors.Join(err, s.Client.AppsV1().Deployments("kube-system").Delete(t.Context(), "coredns",
		metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
}

// TestCheckClusterUpgrade checks that "ctl cluster upgrade" finds a node that is not ready, unless the
// user ignores this check, and that it does not fail without an API server.
func TestCheckClusterUpgrade(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c := &cluster.Config{DataDir: t.TempDir()}
	admin := provision.Dir(c.DataDir).Kubeconfig("admin")
	if err := os.Rename(kubeconfig(t, s, nil), admin); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	commands := &clusters{deps: cluster.Deps{Out: &out}}
	err := commands.checkUpgrade(t.Context(), c, t.TempDir(), nil)
	if err == nil || !strings.Contains(out.String(), "node n1 is not ready") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := commands.checkUpgrade(t.Context(), c, t.TempDir(), []string{"nodeready"}); err != nil {
		t.Error(err)
	}
	s.Stop(t)
	out.Reset()
	if err := commands.checkUpgrade(t.Context(), c, t.TempDir(), nil); err != nil ||
		!strings.Contains(out.String(), "is not checked") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
