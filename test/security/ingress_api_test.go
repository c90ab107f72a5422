// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/api/service"
	"keelson.dev/keelson/pkg/api/networking/hosts"
	"keelson.dev/keelson/pkg/ingress"
)

// follow starts an ingress proxy that watches the API server with the rights of the role for
// ingress controllers.
func (l *lab) follow(t *testing.T) *ingress.Proxy {
	t.Helper()
	rule := func(group string, verbs, resources []string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	read := []string{"list", "watch"}
	client := l.user(t, "ingress", "",
		rule("networking.k8s.io", read, []string{"ingresses", "ingressclasses"}),
		rule("networking.k8s.io", []string{"patch"}, []string{"ingresses/status"}),
		rule("", read, []string{"services"}), rule("discovery.k8s.io", read, []string{"endpointslices"}),
		rule("", []string{"create"}, []string{"events"}))
	p := ingress.NewProxy(ingress.Options{Limits: defaults(), Clock: clock.Real(),
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	c, err := ingress.NewController(client, p, types.NamespacedName{}, clock.Real(), slog.New(slog.DiscardHandler))
	check(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, func() {}) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	return p
}

// fresh returns an Ingress without the fields that the API server sets.
func fresh(name, host string, paths ...string) *networkingv1.Ingress {
	ing := rules("", name, 0, host, paths...)
	ing.CreationTimestamp = metav1.Time{}
	return ing
}

// later waits until objects that the API server creates have a later creation time than the given
// one. Creation times have a resolution of one second.
func later(t *testing.T, c kubernetes.Interface, namespace string, than metav1.Time) {
	t.Helper()
	eventually(t, "a later second", func(ctx context.Context) bool {
		probe, err := c.NetworkingV1().Ingresses(namespace).Create(ctx,
			fresh("probe", "probe.example.org", "/ web"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && probe.CreationTimestamp.After(than.Time)
	})
}

// TestIngressHostTakenOver checks that a namespace cannot take over the host of another namespace.
// It tries a newer Ingress, an old Ingress to which the host is added, and an Ingress with a false
// time in its annotation.
func TestIngressHostTakenOver(t *testing.T) {
	lab := newLab(t, nil)
	ctx := t.Context()
	_, err := lab.Client.NetworkingV1().IngressClasses().Create(ctx, &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: "keelson"},
		Spec:       networkingv1.IngressClassSpec{Controller: service.IngressController},
	}, metav1.CreateOptions{})
	check(t, err)
	lab.namespace(t, "shop")
	lab.namespace(t, "evil")
	shop, evil := lab.owner(t, "alice", "shop").NetworkingV1().Ingresses("shop"), lab.owner(t, "mallory", "evil")
	attack := evil.NetworkingV1().Ingresses("evil")
	allowed(t, func(ctx context.Context) error {
		_, err := attack.List(ctx, metav1.ListOptions{})
		return err
	})
	allowed(t, func(ctx context.Context) error {
		_, err := shop.List(ctx, metav1.ListOptions{})
		return err
	})
	old, err := attack.Create(ctx, fresh("old", "evil.example.org", "/ web"), metav1.CreateOptions{})
	check(t, err)
	later(t, lab.Client, "shop", old.CreationTimestamp)
	owner, err := shop.Create(ctx, fresh("shop", "shop.example.org", "/ web"), metav1.CreateOptions{})
	check(t, err)
	later(t, lab.Client, "shop", owner.CreationTimestamp)

	proxy := lab.follow(t)
	young := fresh("young", "shop.example.org", "/login web", "/.well-known/acme-challenge/ web")
	young.CreationTimestamp = metav1.Unix(1, 0)
	_, err = attack.Create(ctx, young, metav1.CreateOptions{})
	check(t, err)
	// The attacker adds the host to an old Ingress, with an annotation that says that the Ingress
	// has always had the host.
	old.Spec.Rules = append(old.Spec.Rules, fresh("", "shop.example.org", "/cart web").Spec.Rules...)
	old.Annotations = map[string]string{hosts.Since: `{"shop.example.org":"1970-01-01T00:00:00Z"}`}
	_, err = attack.Update(ctx, old, metav1.UpdateOptions{})
	check(t, err)
	_, err = attack.Patch(ctx, "old", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+hosts.Since+`":null}}}`), metav1.PatchOptions{})
	check(t, err)
	// The last Ingress was created after these changes, so once it is served, the changes have been
	// processed.
	_, err = attack.Create(ctx, fresh("last", "last.example.org", "/ web"), metav1.CreateOptions{})
	check(t, err)
	eventually(t, "the table", func(context.Context) bool { return proxy.Table().Route("last.example.org", "/") != nil })
	for _, path := range []string{"/", "/login", "/cart", "/.well-known/acme-challenge/x"} {
		if b := proxy.Table().Route("shop.example.org", path); b == nil || b.Namespace != "shop" {
			t.Errorf("%s goes to %v", path, b)
		}
	}
	if b := proxy.Table().Route("evil.example.org", "/"); b == nil || b.Namespace != "evil" {
		t.Errorf("its own host goes to %v", b)
	}
	// Both Ingresses of the attacker get an event. The event must not name the other namespace.
	for _, name := range []string{"young", "old"} {
		eventually(t, "an event on "+name, func(ctx context.Context) bool {
			events, err := evil.CoreV1().Events("evil").List(ctx,
				metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
			check(t, err)
			for _, e := range events.Items {
				if strings.Contains(e.Message, "namespace shop") || strings.Contains(e.Message, "shop/") {
					t.Errorf("the event names the other namespace: %s", e.Message)
				}
			}
			return len(events.Items) == 1 && events.Items[0].Reason == "HostOwnedByAnotherNamespace" &&
				strings.Contains(events.Items[0].Message, `"shop.example.org"`)
		})
	}
	// After the owner stops using the host, the host belongs to the namespace with the next oldest
	// Ingress.
	check(t, shop.Delete(ctx, "shop", metav1.DeleteOptions{}))
	eventually(t, "the next owner", func(context.Context) bool {
		b := proxy.Table().Route("shop.example.org", "/login")
		return b != nil && b.Namespace == "evil"
	})
}
