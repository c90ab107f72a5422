// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"cmp"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"keelson.dev/api/service"
	"keelson.dev/keelson/pkg/api/networking/hosts"
)

// owners determines which namespace owns each host. The result depends only on the Ingresses, not
// on their order.
type owners struct {
	named map[string][]claim // by host, oldest first; "" stands for rules without a host
}

// claim is an Ingress that names a host. since is the time at which the Ingress was created or
// began to name the host.
type claim struct {
	*networkingv1.Ingress
	since time.Time
}

func ownersOf(ingresses []*networkingv1.Ingress) owners {
	o := owners{named: map[string][]claim{}}
	for _, ing := range ingresses {
		times := hosts.Times(ing)
		for _, host := range hosts.Names(ing) {
			c := claim{ing, ing.CreationTimestamp.Time}
			if later, ok := times[host]; ok && later.After(c.since) {
				c.since = later
			}
			o.named[host] = append(o.named[host], c)
		}
	}
	for _, claims := range o.named {
		slices.SortFunc(claims, earlier)
	}
	return o
}

// earlier compares claims by age. Times have a resolution of one second. Claims of the same second
// are ordered by the UIDs of their Ingresses, because users cannot choose UIDs.
func earlier(a, b claim) int {
	if c := a.since.Compare(b.since); c != 0 {
		return c
	}
	return byUID(a.Ingress, b.Ingress)
}

// older compares Ingresses by age.
func older(a, b *networkingv1.Ingress) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return byUID(a, b)
}

func byUID(a, b *networkingv1.Ingress) int {
	return cmp.Or(strings.Compare(string(a.UID), string(b.UID)),
		strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
}

// of returns the namespace that owns a host: that of the Ingress that has named the host for the
// longest time. But if the wildcard that covers the host was named before that, only the wildcard's
// owner, and namespaces with which it shares the wildcard, can own the host. ok is false if no
// namespace owns the host.
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
		if ing.Namespace == wild[0].Namespace || earlier(ing, wild[0]) < 0 || o.shared(above, ing.Namespace) {
			return ing.Namespace, true
		}
	}
	return "", false
}

// shared reports whether the owner of a host lets a namespace add rules for the host.
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

// refused returns the hosts named in an Ingress that its namespace may not use.
func (o owners) refused(ing *networkingv1.Ingress) []string {
	var out []string
	for _, host := range hosts.Names(ing) {
		if owner, ok := o.of(host); (!ok || owner != ing.Namespace) && !o.shared(host, ing.Namespace) {
			out = append(out, host)
		}
	}
	return out
}
