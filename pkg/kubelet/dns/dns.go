// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dns computes a pod's resolv.conf from its dnsPolicy, its dnsConfig and the kubelet's
// settings. It has no side effects; it reads only the node's resolver file.
package dns

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits of a resolv.conf, and the option that pods with the cluster's DNS get. maxSearchChars is
// in characters and maxResolvConf is in bytes.
const (
	maxNameservers   = 3
	maxSearchPaths   = 32
	maxSearchChars   = 2048
	maxResolvConf    = 10 << 20
	clusterDNSOption = "ndots:5"
)

// Settings holds the kubelet's DNS settings, from the fields clusterDNS, clusterDomain and
// resolvConf of KubeletConfiguration.
type Settings struct {
	// ClusterDNS are the addresses of the cluster's DNS service.
	ClusterDNS []string
	// ClusterDomain is the cluster's DNS domain, for example cluster.local.
	ClusterDomain string
	// ResolvConf is the path of the node's resolver file. If it is empty, no file is read.
	ResolvConf string
	// NodeIPs are the node's addresses.
	NodeIPs []string
}

// Warning describes an event that the caller must record on the pod.
type Warning struct {
	Reason  string
	Message string
	// Node means that the event must be recorded on the node instead of the pod.
	Node bool
}

// Config returns the DNS configuration of a pod's sandbox, and the events that the caller must
// record.
func Config(pod *v1.Pod, s Settings) (*runtimeapi.DNSConfig, []Warning, error) {
	var warnings []Warning
	policy := effectivePolicy(pod)
	if policy == v1.DNSClusterFirst && len(s.ClusterDNS) == 0 {
		policy = v1.DNSDefault
		warnings = missingClusterDNS(pod)
	}
	// Read the node's file even if the policy does not need it, so that an invalid file is reported
	// early.
	conf, err := nodeConfig(s)
	if err != nil {
		return nil, nil, err
	}
	switch policy {
	case v1.DNSNone:
		conf = &runtimeapi.DNSConfig{}
	case v1.DNSDefault:
		if s.ResolvConf == "" {
			conf = noResolver(s.NodeIPs)
		}
		if !pod.Spec.HostNetwork {
			conf.Servers = slices.DeleteFunc(conf.Servers, scoped)
		}
	default:
		conf.Servers = slices.Clone(s.ClusterDNS)
		conf.Searches = clusterSearches(pod.Namespace, s.ClusterDomain, conf.Searches)
		conf.Options = []string{clusterDNSOption}
	}
	if c := pod.Spec.DNSConfig; c != nil {
		conf.Servers = unique(append(conf.Servers, c.Nameservers...))
		conf.Searches = unique(append(conf.Searches, c.Searches...))
		conf.Options = mergeOptions(conf.Options, podOptions(c.Options))
	}
	return conf, append(warnings, limit(conf)...), nil
}

// effectivePolicy returns the policy to apply: DNSNone, DNSDefault or DNSClusterFirst. An unknown
// policy is treated as DNSClusterFirst.
func effectivePolicy(pod *v1.Pod) v1.DNSPolicy {
	switch p := pod.Spec.DNSPolicy; {
	case p == v1.DNSNone, p == v1.DNSDefault:
		return p
	case p == v1.DNSClusterFirst && pod.Spec.HostNetwork:
		return v1.DNSDefault
	}
	return v1.DNSClusterFirst
}

func missingClusterDNS(pod *v1.Pod) []Warning {
	message := fmt.Sprintf("kubelet does not have ClusterDNS IP configured and cannot create Pod using %q "+
		"policy. Falling back to %q policy.",
		v1.DNSClusterFirst, v1.DNSDefault)
	return []Warning{
		{Reason: "MissingClusterDNS", Message: message, Node: true},
		{Reason: "MissingClusterDNS", Message: fmt.Sprintf("pod: \"%s_%s(%s)\". %s", pod.Name, pod.Namespace,
			pod.UID, message)},
	}
}

// noResolver returns the configuration for pods with the policy Default if the node has no resolver
// file: the loopback address of each of the node's IP families. A resolv.conf without nameservers
// has the same effect, but without any nameserver the runtime would use the node's
// /etc/resolv.conf.
func noResolver(nodeIPs []string) *runtimeapi.DNSConfig {
	conf := &runtimeapi.DNSConfig{Searches: []string{"."}}
	for _, ip := range nodeIPs {
		local := "127.0.0.1"
		if a, err := netip.ParseAddr(ip); err == nil && a.Is6() && !a.Is4In6() {
			local = "::1"
		}
		conf.Servers = append(conf.Servers, local)
	}
	if len(conf.Servers) == 0 {
		conf.Servers = []string{"127.0.0.1"}
	}
	return conf
}

// scoped reports whether the address of a nameserver is bound to a network interface of the node,
// such as fe80::1%eth0. A pod's network namespace does not have this interface.
func scoped(server string) bool {
	a, err := netip.ParseAddr(server)
	return err == nil && a.Zone() != "" && a.IsLinkLocalUnicast()
}

func clusterSearches(namespace, domain string, node []string) []string {
	if domain == "" {
		return node
	}
	return unique(append([]string{namespace + ".svc." + domain, "svc." + domain, domain}, node...))
}

// limit removes the nameservers and search domains that exceed the limits of resolvers, and returns
// warnings about the removal.
func limit(conf *runtimeapi.DNSConfig) []Warning {
	var out []Warning
	if len(conf.Servers) > maxNameservers {
		conf.Servers = conf.Servers[:maxNameservers]
		out = append(out, Warning{Reason: "DNSConfigForming",
			Message: "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: " +
				strings.Join(conf.Servers, " ")})
	}
	if fits := fittingSearches(conf.Searches); len(fits) < len(conf.Searches) {
		conf.Searches = fits
		out = append(out, Warning{Reason: "DNSConfigForming",
			Message: "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " +
				strings.Join(fits, " ")})
	}
	return out
}

// fittingSearches returns the search domains that fit within the limits. It skips domains that are
// longer than a valid domain name, because glibc 2.28 aborts on them.
func fittingSearches(searches []string) []string {
	var fits []string
	chars := -1 // starts at -1, because there is no space before the first domain
	for _, s := range searches[:min(len(searches), maxSearchPaths)] {
		if len(s) > validation.DNS1123SubdomainMaxLength {
			continue
		}
		if chars += 1 + len(s); chars > maxSearchChars {
			break
		}
		fits = append(fits, s)
	}
	return fits
}

// nodeConfig reads the node's resolver file, if there is one.
func nodeConfig(s Settings) (*runtimeapi.DNSConfig, error) {
	if s.ResolvConf == "" {
		return &runtimeapi.DNSConfig{}, nil
	}
	f, err := os.Open(s.ResolvConf)
	if err != nil {
		return nil, err // the error already contains the operation and the path
	}
	defer f.Close()
	conf, err := parse(f)
	if err != nil {
		// The text is that of Kubernetes, because users see it.
		return nil, fmt.Errorf("Encountered error while parsing resolv conf file. Error: %w", err)
	}
	return conf, nil
}

// parse parses a resolv.conf. It uses all nameserver and options lines, but only the last search
// line.
func parse(r io.Reader) (*runtimeapi.DNSConfig, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxResolvConf+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxResolvConf {
		return nil, fmt.Errorf("longer than %d bytes", maxResolvConf)
	}
	conf := &runtimeapi.DNSConfig{}
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "nameserver":
			if len(words) < 2 {
				return nil, fmt.Errorf("nameserver list is empty ")
			}
			conf.Servers = append(conf.Servers, words[1])
		case "search":
			conf.Searches = nil
			for _, s := range words[1:] {
				if s != "." {
					conf.Searches = append(conf.Searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			conf.Options = mergeOptions(conf.Options, words[1:])
		}
	}
	return conf, nil
}

func podOptions(options []v1.PodDNSConfigOption) []string {
	out := make([]string, 0, len(options))
	for _, o := range options {
		if o.Value != nil && *o.Value != "" {
			out = append(out, o.Name+":"+*o.Value)
		} else {
			out = append(out, o.Name)
		}
	}
	return out
}

// mergeOptions returns the options of both lists. An option in the second list replaces one of the
// same name in the first.
func mergeOptions(have, add []string) []string {
	name := func(o string) string { n, _, _ := strings.Cut(o, ":"); return n }
	out := slices.Clone(have)
	for _, o := range add {
		if i := slices.IndexFunc(out, func(h string) bool { return name(h) == name(o) }); i >= 0 {
			out[i] = o
		} else {
			out = append(out, o)
		}
	}
	return out
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
