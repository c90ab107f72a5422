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

// Table says where requests go. It is read concurrently and never changed.
type Table struct {
	sites        map[string]*site // by host; "*.example.org" one label below, "" any
	certificates map[string]*tls.Certificate
	fallback     *Backend // nil: none
}

// site is one host's part of a table.
type site struct {
	exact    map[string]*Backend
	prefixes map[string]*Backend // without the slash at their end
	depth    int                 // most slashes in a prefix
	fallback *Backend
}

// Certificates finds the certificate in a Secret; nil: there is none, or not yet.
type Certificates func(namespace, secret string) *tls.Certificate

// Build compiles Ingresses into a table. Of what they claim alike, the oldest
// has it.
func Build(ingresses []*networkingv1.Ingress, backends Backends, certificates Certificates) *Table {
	t := &Table{sites: map[string]*site{}, certificates: map[string]*tls.Certificate{}}
	ingresses = slices.Clone(ingresses)
	slices.SortFunc(ingresses, older)
	for _, ing := range ingresses {
		t.add(ing, backends)
		t.secure(ing, certificates)
	}
	return t
}

// older orders Ingresses by age, and by name where that does not tell.
func older(a, b *networkingv1.Ingress) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
}

func (t *Table) add(ing *networkingv1.Ingress, backends Backends) {
	var fallback *Backend
	if b := ing.Spec.DefaultBackend; b != nil {
		fallback = backends.find(ing.Namespace, b)
		if t.fallback == nil {
			t.fallback = fallback
		}
	}
	for _, rule := range ing.Spec.Rules {
		s := t.site(rule.Host)
		if s.fallback == nil {
			s.fallback = fallback
		}
		if rule.HTTP == nil {
			continue
		}
		for i := range rule.HTTP.Paths {
			s.add(&rule.HTTP.Paths[i], func(b *networkingv1.IngressBackend) *Backend { return backends.find(ing.Namespace, b) })
		}
	}
}

func (t *Table) site(host string) *site {
	host = strings.ToLower(host)
	s := t.sites[host]
	if s == nil {
		s = &site{exact: map[string]*Backend{}, prefixes: map[string]*Backend{}}
		t.sites[host] = s
	}
	return s
}

func (s *site) add(p *networkingv1.HTTPIngressPath, find func(*networkingv1.IngressBackend) *Backend) {
	paths, path := s.exact, p.Path
	if p.PathType == nil || *p.PathType != networkingv1.PathTypeExact {
		paths, path = s.prefixes, strings.TrimRight(p.Path, "/")
		s.depth = max(s.depth, strings.Count(path, "/"))
	}
	if paths[path] == nil {
		paths[path] = find(&p.Backend)
	}
}

// secure takes the certificates of one Ingress. One without hosts is of all
// hosts in the Ingress's rules.
func (t *Table) secure(ing *networkingv1.Ingress, certificates Certificates) {
	for _, section := range ing.Spec.TLS {
		cert := certificates(ing.Namespace, section.SecretName)
		if cert == nil {
			continue
		}
		hosts := section.Hosts
		if len(hosts) == 0 {
			for _, rule := range ing.Spec.Rules {
				hosts = append(hosts, rule.Host)
			}
		}
		for _, host := range hosts {
			if host = strings.ToLower(host); t.certificates[host] == nil {
				t.certificates[host] = cert
			}
		}
	}
}

// Route finds where a request for host and path goes; nil: nowhere. The longest
// path wins, an exact one before a prefix; a host of its own before a wildcard,
// a wildcard before the rules of any host.
func (t *Table) Route(host, path string) *Backend {
	host = bare(host)
	var fallback *Backend
	for _, name := range [...]string{host, wildcard(host), ""} {
		s := t.sites[name]
		if s == nil {
			continue
		}
		if b := s.route(path); b != nil {
			return b
		}
		if fallback == nil {
			fallback = s.fallback
		}
	}
	if fallback != nil {
		return fallback
	}
	return t.fallback
}

func (s *site) route(path string) *Backend {
	if b := s.exact[path]; b != nil {
		return b
	}
	// Prefixes end where an element does: the longest that one may have is
	// looked up first, and no request makes us look up more than there are.
	end, slashes := len(path), 0
	for i := range len(path) {
		if path[i] != '/' {
			continue
		}
		if slashes++; slashes > s.depth {
			end = i
			break
		}
	}
	for {
		if b := s.prefixes[path[:end]]; b != nil {
			return b
		}
		if end == 0 {
			return nil
		}
		end = max(strings.LastIndexByte(path[:end], '/'), 0)
	}
}

// Certificate is the certificate to show who asks for host; nil: none.
func (t *Table) Certificate(host string) *tls.Certificate {
	host = bare(host)
	for _, name := range [...]string{host, wildcard(host), ""} {
		if c := t.certificates[name]; c != nil {
			return c
		}
	}
	return nil
}

// bare is a host in lower case, without port and without the dot at its end.
func bare(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// wildcard is the name that covers host and its siblings.
func wildcard(host string) string {
	_, parent, ok := strings.Cut(host, ".")
	if !ok || strings.HasPrefix(host, ".") {
		return "*"
	}
	return "*." + parent
}
