// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestNames checks the host name of a pod's sandbox and the names in its hosts file, up to the
// longest names that the API accepts.
func TestNames(t *testing.T) {
	w := &worker{Pool: &Pool{cfg: Config{Settings: Settings{ClusterDomain: "cluster.local"}}}}
	long := strings.Repeat("a", 62)
	for name, c := range map[string]struct {
		pod                  string
		spec                 v1.PodSpec
		kernel, host, domain string
		err                  string
	}{
		"a pod":       {pod: "p", kernel: "p", host: "p"},
		"a long name": {pod: long + "-" + strings.Repeat("b", 190), kernel: long, host: long},
		"the longest name": {pod: strings.Repeat("a", 253), kernel: strings.Repeat("a", 63),
			host: strings.Repeat("a", 63)},
		"a host name": {pod: "p", spec: v1.PodSpec{Hostname: "h"}, kernel: "h", host: "h"},
		"a subdomain": {pod: "p", spec: v1.PodSpec{Subdomain: "s"}, kernel: "p", host: "p",
			domain: "s.ns.svc.cluster.local"},
		"an override": {pod: "p", spec: v1.PodSpec{HostnameOverride: new("x.example")},
			kernel: "x.example", host: "x.example"},
		"FQDN as host name": {pod: "p", spec: v1.PodSpec{Subdomain: "s", SetHostnameAsFQDN: new(true)},
			kernel: "p.s.ns.svc.cluster.local", host: "p", domain: "s.ns.svc.cluster.local"},
		"FQDN without subdomain": {pod: "p", spec: v1.PodSpec{SetHostnameAsFQDN: new(true)}, kernel: "p", host: "p"},
		"longest FQDN": {pod: strings.Repeat("a", 41),
			spec: v1.PodSpec{Subdomain: "s", SetHostnameAsFQDN: new(true)}, kernel: strings.Repeat("a", 41) +
				".s.ns.svc.cluster.local", host: strings.Repeat("a", 41), domain: "s.ns.svc.cluster.local"},
		"FQDN too long": {pod: strings.Repeat("a", 42),
			spec: v1.PodSpec{Subdomain: "s", SetHostnameAsFQDN: new(true)}, host: strings.Repeat("a", 42),
			domain: "s.ns.svc.cluster.local", err: "is too long (64 characters is the max, 65 characters requested)"},
		"a long override": {pod: "p", spec: v1.PodSpec{HostnameOverride: new(strings.Repeat("x", 64))},
			kernel: strings.Repeat("x", 63), host: strings.Repeat("x", 63)},
		"host network": {pod: "p", spec: v1.PodSpec{HostNetwork: true}, host: "p"},
	} {
		pod := testPod(v1.RestartPolicyAlways, "a")
		pod.Name, pod.Spec = c.pod, c.spec
		host, domain := w.hostNames(pod)
		kernel, err := w.kernelName(pod)
		if kernel != c.kernel || host != c.host || domain != c.domain {
			t.Errorf("%s: kernel %q, host %q, domain %q", name, kernel, host, domain)
		}
		if (err == nil) != (c.err == "") || err != nil && !strings.HasSuffix(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
	}
}
