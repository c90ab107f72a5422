// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

func ingressCells(i *networkingv1.Ingress, env resource.CellEnv) []any {
	addresses := sets.New[string]()
	for _, in := range i.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			addresses.Insert(in.IP)
		} else if in.Hostname != "" {
			addresses.Insert(in.Hostname)
		}
	}
	ports := "80"
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	return []any{
		i.Name, column.Deref(i.Spec.IngressClassName, column.None), hosts(i.Spec.Rules),
		strings.Join(sets.List(addresses), ","), ports, env.Age(i.CreationTimestamp),
	}
}

const shownHosts = 3

// hosts shows the first hosts; how many more is counted in rules.
func hosts(rules []networkingv1.IngressRule) string {
	var list []string
	for _, rule := range rules {
		if len(list) == shownHosts {
			return fmt.Sprintf("%s + %d more...", strings.Join(list, ","), len(rules)-shownHosts)
		}
		if rule.Host != "" {
			list = append(list, rule.Host)
		}
	}
	if len(list) == 0 {
		return "*"
	}
	return strings.Join(list, ",")
}

func ingressClassCells(c *networkingv1.IngressClass, env resource.CellEnv) []any {
	name := c.Name
	if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
		name += " (default)"
	}
	parameters := column.None
	if p := c.Spec.Parameters; p != nil {
		parameters = p.Kind
		if p.APIGroup != nil {
			parameters += "." + *p.APIGroup
		}
		parameters += "/" + p.Name
	}
	return []any{name, c.Spec.Controller, parameters, env.Age(c.CreationTimestamp)}
}

func networkPolicyCells(p *networkingv1.NetworkPolicy, env resource.CellEnv) []any {
	return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), env.Age(p.CreationTimestamp)}
}

// ipAddressCells has one cell more than there are columns, as in Kubernetes.
func ipAddressCells(a *networkingv1.IPAddress, env resource.CellEnv) []any {
	parent := column.None
	if ref := a.Spec.ParentRef; ref != nil {
		parent = strings.ToLower(schema.GroupResource{Group: ref.Group, Resource: ref.Resource}.String())
		if ref.Namespace != "" {
			parent += "/" + ref.Namespace
		}
		parent += "/" + ref.Name
	}
	return []any{a.Name, parent, env.Age(a.CreationTimestamp)}
}

func serviceCIDRCells(c *networkingv1.ServiceCIDR, env resource.CellEnv) []any {
	return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), env.Age(c.CreationTimestamp)}
}
