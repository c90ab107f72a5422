// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"crypto/tls"
	"net"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// Table is a routing table: it determines the backend of each request. It is immutable, so it can
// be used concurrently.
type Table struct {
	hosts        map[string]*host                       // by name; "*.example.org" is one label below
	rest         *host                                  // rules for hosts that no Ingress names; may be nil
	certificates map[string]map[string]*tls.Certificate // by namespace and host; "" is any host
	refused      map[*networkingv1.Ingress][]string
}

// host contains the rules for one host.
type host struct {
	exact    map[string]*Backend
	prefixes map[string]*Backend // by prefix, without a trailing slash
	depth    int                 // maximum number of slashes in a prefix
	fallback *Backend
	owner    string
	next     *host // further rules of the same owner: those of its wildcard, or those without a host
}

// Certificates returns the certificate in a Secret. It returns nil if there is none, or if the
// Secret has not been read yet.
type Certificates func(namespace, secret string) *tls.Certificate

// Build compiles Ingresses into a routing table. A host belongs to the namespace of the Ingress
// that has named it for the longest time. If two Ingresses of a namespace have a rule for the same
// path, or a certificate for the same host, the older Ingress takes precedence.
func Build(ingresses []*networkingv1.Ingress, backends Backends, certificates Certificates) *Table {
	t := &Table{hosts: map[string]*host{}, certificates: map[string]map[string]*tls.Certificate{},
		refused: map[*networkingv1.Ingress][]string{}}
	ingresses = slices.Clone(ingresses)
	slices.SortFunc(ingresses, older)
	o := ownersOf(ingresses)
	for name := range o.named {
		if owner, ok := o.of(name); ok && name != "" {
			t.hosts[name] = newHost(owner)
		}
	}
	hostless := map[string]*host{} // rules without a host, by namespace
	for _, ing := range ingresses {
		t.add(ing, hostless, backends)
		t.secure(ing, certificates)
		if refused := o.refused(ing); len(refused) > 0 {
			t.refused[ing] = refused
		}
	}
	for _, ing := range ingresses {
		t.addShared(ing, o, backends)
	}
	t.link(hostless)
	if owner, ok := o.of(""); ok {
		t.rest = hostless[owner]
	}
	return t
}

func newHost(owner string) *host {
	return &host{exact: map[string]*Backend{}, prefixes: map[string]*Backend{}, owner: owner}
}

// add adds the rules of an Ingress for those hosts that its namespace owns.
func (t *Table) add(ing *networkingv1.Ingress, hostless map[string]*host, backends Backends) {
	find := func(b *networkingv1.IngressBackend) *Backend { return backends.find(ing.Namespace, b) }
	ownHost := func() *host {
		if hostless[ing.Namespace] == nil {
			hostless[ing.Namespace] = newHost(ing.Namespace)
		}
		return hostless[ing.Namespace]
	}
	var fallback *Backend
	if b := ing.Spec.DefaultBackend; b != nil {
		fallback = find(b)
		if h := ownHost(); h.fallback == nil {
			h.fallback = fallback
		}
	}
	for i := range ing.Spec.Rules {
		rule := &ing.Spec.Rules[i]
		h := t.hosts[bare(rule.Host)]
		if rule.Host == "" {
			h = ownHost()
		}
		if h == nil || h.owner != ing.Namespace {
			continue
		}
		if h.fallback == nil {
			h.fallback = fallback
		}
		h.addRule(rule, find)
	}
}

// addShared adds the rules of an Ingress for hosts whose owners share them with the namespace of
// the Ingress. For the same path, the rule of the host's owner takes precedence.
func (t *Table) addShared(ing *networkingv1.Ingress, o owners, backends Backends) {
	for i := range ing.Spec.Rules {
		name := bare(ing.Spec.Rules[i].Host)
		if h := t.hosts[name]; h != nil && h.owner != ing.Namespace && o.shared(name, ing.Namespace) {
			h.addRule(&ing.Spec.Rules[i], func(b *networkingv1.IngressBackend) *Backend {
				return backends.find(ing.Namespace, b)
			})
		}
	}
}

// link sets for each host the rules to use if none of its own rules matches.
func (t *Table) link(hostless map[string]*host) {
	for name, h := range t.hosts {
		h.next = hostless[h.owner]
		if wild := t.hosts[wildcard(name)]; wild != nil && wild != h && wild.owner == h.owner {
			h.next = wild
		}
	}
}

func (h *host) addRule(rule *networkingv1.IngressRule, find func(*networkingv1.IngressBackend) *Backend) {
	if rule.HTTP == nil {
		return
	}
	for i := range rule.HTTP.Paths {
		h.add(&rule.HTTP.Paths[i], find)
	}
}

func (h *host) add(p *networkingv1.HTTPIngressPath, find func(*networkingv1.IngressBackend) *Backend) {
	paths, path := h.exact, p.Path
	if p.PathType == nil || *p.PathType != networkingv1.PathTypeExact {
		paths, path = h.prefixes, strings.TrimRight(p.Path, "/")
		h.depth = max(h.depth, strings.Count(path, "/"))
	}
	if paths[path] == nil {
		paths[path] = find(&p.Backend)
	}
}

// secure adds the certificates of an Ingress for hosts of its namespace. A TLS section without
// hosts applies to all hosts in the rules of the Ingress.
func (t *Table) secure(ing *networkingv1.Ingress, certificates Certificates) {
	for _, section := range ing.Spec.TLS {
		cert := certificates(ing.Namespace, section.SecretName)
		if cert == nil {
			continue
		}
		hosts := slices.Clone(section.Hosts)
		if len(hosts) == 0 {
			for _, rule := range ing.Spec.Rules {
				hosts = append(hosts, rule.Host)
			}
		}
		own := t.certificates[ing.Namespace]
		if own == nil {
			own = map[string]*tls.Certificate{}
			t.certificates[ing.Namespace] = own
		}
		for _, host := range hosts {
			if host = bare(host); own[host] == nil {
				own[host] = cert
			}
		}
	}
}

// Refused returns the hosts named in an Ingress that its namespace may not use. "" stands for rules
// without a host and the default backend.
func (t *Table) Refused(ing *networkingv1.Ingress) []string { return t.refused[ing] }

// find returns the rules to use for a host name, or nil if there are none.
func (t *Table) find(name string) *host {
	if h := t.hosts[name]; h != nil {
		return h
	}
	if h := t.hosts[wildcard(name)]; h != nil {
		return h
	}
	return t.rest
}

// Route returns the backend for a host and path, or nil. The rules for the exact host come first,
// then those for a wildcard, and then those without a host. Among the rules of one host, the
// longest matching path is used, and an exact path takes precedence over a prefix.
func (t *Table) Route(host, path string) *Backend {
	var fallback *Backend
	for h := t.find(bare(host)); h != nil; h = h.next {
		if b := h.route(path); b != nil {
			return b
		}
		if fallback == nil {
			fallback = h.fallback
		}
	}
	return fallback
}

func (h *host) route(path string) *Backend {
	if b := h.exact[path]; b != nil {
		return b
	}
	// A prefix matches only whole elements of the path. Try the longest possible prefix first. The
	// number of lookups depends on the longest prefix in the table, and not on the length of the
	// request's path.
	end, slashes := len(path), 0
	for i := range len(path) {
		if path[i] != '/' {
			continue
		}
		if slashes++; slashes > h.depth {
			end = i
			break
		}
	}
	for {
		if b := h.prefixes[path[:end]]; b != nil {
			return b
		}
		if end == 0 {
			return nil
		}
		end = max(strings.LastIndexByte(path[:end], '/'), 0)
	}
}

// Certificate returns the certificate for a host, from the namespace that owns the host. It returns
// nil if there is none.
func (t *Table) Certificate(host string) *tls.Certificate {
	host = bare(host)
	h := t.find(host)
	if h == nil {
		return nil
	}
	own := t.certificates[h.owner]
	for _, name := range [...]string{host, wildcard(host), ""} {
		if c := own[name]; c != nil {
			return c
		}
	}
	return nil
}

// bare returns a host in lower case, without port and trailing dot.
func bare(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// wildcard returns the wildcard that covers a host, such as *.example.org for a.example.org.
func wildcard(host string) string {
	_, parent, ok := strings.Cut(host, ".")
	if !ok || strings.HasPrefix(host, ".") {
		return "*"
	}
	return "*." + parent
}
