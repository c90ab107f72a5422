// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestManifests checks that all add-ons of a cluster can be read and that the API resources of their
// kinds are known, and checks what depends on the cluster.
func TestManifests(t *testing.T) {
	for name, tc := range map[string]struct {
		forward   bool
		want, not string
	}{
		"closed cluster": {false, "rcode NXDOMAIN", "resolv.conf"},
		"forwarding":     {true, "forward . /etc/resolv.conf {", "NXDOMAIN"},
	} {
		t.Run(name, func(t *testing.T) {
			c := exampleCluster()
			c.ForwardDNS, c.Ingress, c.Machines = tc.forward, true, true
			objects := map[string]*unstructured.Unstructured{}
			for _, file := range c.manifestFiles() {
				list, err := c.readManifest(file)
				if err != nil || len(list) == 0 {
					t.Fatalf("%s: %d objects, error %v", file, len(list), err)
				}
				for _, o := range list {
					if _, ok := addonResource(o.GroupVersionKind()); !ok || o.GetName() == "" {
						t.Errorf("%s: %s %q", file, o.GroupVersionKind(), o.GetName())
					}
					objects[o.GetKind()+" "+o.GetName()] = o
				}
			}
			addresses, _, err := unstructured.NestedStringSlice(objects["Service kube-dns"].Object, "spec", "clusterIPs")
			if err != nil || !slices.Equal(addresses, []string{"10.30.0.10", "fd30::a"}) {
				t.Errorf("DNS has %q, %v", addresses, err)
			}
			corefile, _, err := unstructured.NestedString(objects["ConfigMap coredns"].Object, "data", "Corefile")
			if err != nil || !strings.Contains(corefile, "\nexample.internal:53 ") || !strings.Contains(corefile, tc.want) ||
				strings.Contains(corefile, tc.not) || strings.Contains(corefile, "{{") {
				t.Errorf("%v in\n%s", err, corefile)
			}
		})
	}
}

// TestApplyAddons checks that the second call keeps what an operator has changed, except the rights
// of the cluster's own components.
func TestApplyAddons(t *testing.T) {
	c := exampleCluster()
	c.Machines = true
	s := testserver.Start(t, testserver.Options{Configure: func(cfg *config.Config) {
		cfg.ServiceClusterIPRanges = []netip.Prefix{c.Families[0].Services, c.Families[1].Services}
	}})
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ApplyRights(t.Context(), client, clock.Real()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.RbacV1().ClusterRoles().Get(t.Context(), "keelson:kubelet-serving-approval",
		metav1.GetOptions{}); err != nil {
		t.Error("rights to approve certificates:", err)
	}
	if _, err := s.Client.AppsV1().Deployments("kube-system").Get(t.Context(), "coredns",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error("more than the rights:", err)
	}
	if err := c.ApplyAddons(t.Context(), client, clock.Real()); err != nil {
		t.Fatal(err)
	}
	corefile, err := s.Client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	corefile.Data = map[string]string{"Corefile": "mine"}
	_, err = s.Client.CoreV1().ConfigMaps("kube-system").Update(t.Context(), corefile, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	roles := s.Client.RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "keelson:pod-network", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules = nil
	if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.ApplyAddons(t.Context(), client, clock.Real()); err != nil {
		t.Fatal(err)
	}
	corefile, err = s.Client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{})
	if err != nil || corefile.Data["Corefile"] != "mine" {
		t.Errorf("configuration of CoreDNS: %q, %v", corefile.Data, err)
	}
	if role, err = roles.Get(t.Context(), role.Name, metav1.GetOptions{}); err != nil || len(role.Rules) == 0 {
		t.Errorf("rights: %v, %v", role.Rules, err)
	}
}

// TestUpdateAddons changes objects as an earlier release, an operator and an autoscaler do, and checks what the
// update changes.
func TestUpdateAddons(t *testing.T) {
	c := exampleCluster()
	c.Machines, c.Ingress = true, true
	s := testserver.Start(t, testserver.Options{Configure: func(cfg *config.Config) {
		cfg.ServiceClusterIPRanges = []netip.Prefix{c.Families[0].Services, c.Families[1].Services}
	}})
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ApplyAddons(t.Context(), client, clock.Real()); err != nil {
		t.Fatal(err)
	}
	change := func(name, manager, patch string, more ...string) {
		t.Helper()
		_, err := s.Client.AppsV1().Deployments("kube-system").Patch(t.Context(), name, types.StrategicMergePatchType,
			[]byte(patch), metav1.PatchOptions{FieldManager: manager}, more...)
		if err != nil {
			t.Fatal(err)
		}
	}
	const image = `{"spec":{"template":{"spec":{"containers":[{"name":"%s","image":"%s"}]}}}}`
	change("coredns", addonManager, fmt.Sprintf(image, "coredns", "old")) // as an earlier release has created it
	change("coredns", addonManager, `{"metadata":{"labels":{"of-earlier-release":"x"}}}`)
	change("coredns", "autoscaler", `{"spec":{"replicas":5}}`)
	change("coredns", "operator", `{"spec":{"template":{"metadata":{"annotations":{"of-operator":"x"}}}}}`)
	change("ingress", "operator", fmt.Sprintf(image, "ingress", "mine"))
	const mine = `Deployment ingress: .spec.template.spec.containers[name="ingress"].image`
	for range 2 {
		kept, err := c.UpdateAddons(t.Context(), client, clock.Real())
		if err != nil || len(kept) != 1 || kept[0] != mine {
			t.Fatalf("kept %q, %v, want %q", kept, err, mine)
		}
	}
	dns, err := s.Client.AppsV1().Deployments("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &dns.Spec.Template
	if !strings.HasPrefix(pod.Spec.Containers[0].Image, "registry.k8s.io/coredns/coredns:") || *dns.Spec.Replicas != 5 ||
		pod.Annotations["of-operator"] != "x" || dns.Labels["of-earlier-release"] != "" {
		t.Errorf("image %s, %d replicas, annotations %v, labels %v", pod.Spec.Containers[0].Image, *dns.Spec.Replicas,
			pod.Annotations, dns.Labels)
	}
	before := dns.Generation
	if _, err := c.UpdateAddons(t.Context(), client, clock.Real()); err != nil {
		t.Fatal(err)
	}
	dns, err = s.Client.AppsV1().Deployments("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{})
	if err != nil || dns.Generation != before {
		t.Errorf("an update that was repeated has changed CoreDNS: generation %d, %v, want %d", dns.Generation, err, before)
	}
}

// TestUpdateRights checks that updateRights makes the roles of the cluster's own components equal
// to the manifests. It must not change other roles, or roles with the annotation against updates.
func TestUpdateRights(t *testing.T) {
	object := func(kind, name, field, value, keep string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"kind": kind, field: []any{value}}}
		o.SetName(name)
		if keep != "" {
			o.SetAnnotations(map[string]string{rbacv1.AutoUpdateAnnotationKey: keep})
		}
		return o
	}
	for name, c := range map[string]struct {
		kind, name, field, present, keep string
		want                             bool
	}{
		"other rules":                  {"ClusterRole", "keelson:a", "rules", "wide", "", true},
		"the same rules":               {"ClusterRole", "keelson:a", "rules", "new", "", false},
		"other subjects":               {"ClusterRoleBinding", "keelson:a", "subjects", "shared", "true", true},
		"rules kept on purpose":        {"ClusterRole", "keelson:a", "rules", "wide", "false", false},
		"a role that is not ours":      {"ClusterRole", "system:coredns", "rules", "wide", "", false},
		"an object that is not a role": {"ConfigMap", "keelson:a", "data", "own", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			present, want := object(c.kind, c.name, c.field, c.present, c.keep), object(c.kind, c.name, c.field, "new", "")
			got := updateRights(present, want)
			if after := reflect.DeepEqual(present.Object[c.field], want.Object[c.field]); got != c.want ||
				after != (c.want || c.present == "new") {
				t.Errorf("updated: %t, to %v", got, present.Object[c.field])
			}
		})
	}
}
