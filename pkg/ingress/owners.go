// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"keelson.dev/api/service"
)

// owners decides which namespace each host belongs to. It depends on the
// Ingresses alone, not on the order in which they were seen.
type owners struct {
	named map[string][]*networkingv1.Ingress // by host, oldest first; "" is every other host
}

// ownersOf returns the owners that Ingresses make, which are sorted by age.
func ownersOf(sorted []*networkingv1.Ingress) owners {
	o := owners{named: map[string][]*networkingv1.Ingress{}}
	for _, ing := range sorted {
		for _, host := range names(ing) {
			o.named[host] = append(o.named[host], ing)
		}
	}
	return o
}

// names returns the hosts that an Ingress claims: those of its rules, and the
// exact hosts of its certificates. A rule without a host and a default backend
// claim "". A wildcard of a certificate claims nothing: it says what the
// certificate is good for, not what is served.
func names(ing *networkingv1.Ingress) []string {
	var out []string
	if ing.Spec.DefaultBackend != nil {
		out = append(out, "")
	}
	for i := range ing.Spec.Rules {
		out = append(out, bare(ing.Spec.Rules[i].Host))
	}
	for i := range ing.Spec.TLS {
		for _, host := range ing.Spec.TLS[i].Hosts {
			if !strings.HasPrefix(host, "*") {
				out = append(out, bare(host))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// of returns the namespace that a name belongs to. An exact host below an older
// wildcard of another namespace is part of what that wildcard serves: it has no
// owner of its own, unless the wildcard is shared.
func (o owners) of(host string) (namespace string, ok bool) {
	claims := o.named[host]
	if len(claims) == 0 {
		return "", false
	}
	above := wildcard(host)
	wild := o.named[above]
	if host == "" || strings.HasPrefix(host, "*") || len(wild) == 0 {
		return claims[0].Namespace, true
	}
	for _, ing := range claims {
		if ing.Namespace == wild[0].Namespace || older(ing, wild[0]) < 0 || o.shared(above, ing.Namespace) {
			return ing.Namespace, true
		}
	}
	return "", false
}

// shared reports whether the owner of a host lets a namespace add rules to it.
func (o owners) shared(host, namespace string) bool {
	claims := o.named[host]
	owner, ok := o.of(host)
	if !ok || host == "" {
		return false
	}
	for _, ing := range claims {
		if ing.Namespace != owner {
			continue
		}
		for with := range strings.SplitSeq(ing.Annotations[service.ShareHosts], ",") {
			if with = strings.TrimSpace(with); with == namespace || with == "*" {
				return true
			}
		}
	}
	return false
}

// refused returns the names of an Ingress that another namespace owns.
func (o owners) refused(ing *networkingv1.Ingress) []string {
	var out []string
	for _, host := range names(ing) {
		if owner, ok := o.of(host); (!ok || owner != ing.Namespace) && !o.shared(host, ing.Namespace) {
			out = append(out, host)
		}
	}
	return out
}

// older orders Ingresses by age. Creation times have seconds: of two that were
// created within one, the UID decides, which nobody can choose.
func older(a, b *networkingv1.Ingress) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	if c := strings.Compare(string(a.UID), string(b.UID)); c != 0 {
		return c
	}
	return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
}
