// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"strings"
)

// This file has the settings with which a cluster is safer than with the programs' defaults.

// tlsSuites returns the TLS 1.2 cipher suites that the cluster's servers accept: those with forward
// secrecy and authenticated encryption. All suites of TLS 1.3 have both properties.
func tlsSuites() []string {
	return []string{
		"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
	}
}

const tlsVersion = "VersionTLS12"

// Limits of a cluster's audit logs: age in days, number of files, and size of each file in
// megabytes.
const (
	auditDays  = 30
	auditFiles = 10
	auditSize  = 100
)

// streamsPerConnection is the maximum number of concurrent requests on one HTTP/2 connection.
const streamsPerConnection = 250

// servingFlags returns the hardening flags that apply to every server of the control plane.
func servingFlags() []string {
	return []string{
		"--profiling=false", "--tls-min-version=" + tlsVersion, "--tls-cipher-suites=" + strings.Join(tlsSuites(), ","),
		fmt.Sprintf("--http2-max-streams-per-connection=%d", streamsPerConnection),
	}
}

// hardenedAPIServer returns the API server flags whose values differ from the program's defaults.
func hardenedAPIServer(c *Config, r replica) []string {
	d := c.dirs()
	own := []string{"special"}
	for _, each := range c.controlAddresses() {
		own = append(own, netip.PrefixFrom(each, each.BitLen()).String())
	}
	return append(servingFlags(),
		"--anonymous-auth=false",
		"--service-account-lookup=true", "--service-account-extend-token-expiration=false",
		"--enable-admission-plugins=NodeRestriction,NodeOwnership,DenyServiceExternalIPs,EndpointOwnership,IngressHosts",
		"--node-address-ranges="+c.IPFamily.nodeRanges(),
		// A webhook, APIService or Node object must not make the API server connect to itself, to
		// its machine, or to a cloud's metadata service.
		"--outbound-deny="+strings.Join(own, ","),
		"--encryption-provider-config="+d.encryption(), "--encryption-provider-config-automatic-reload=true",
		"--audit-policy-file="+d.file("audit-policy.yaml"), "--audit-log-path="+d.auditLog(r.suffix),
		fmt.Sprintf("--audit-log-maxage=%d", auditDays), fmt.Sprintf("--audit-log-maxbackup=%d", auditFiles),
		fmt.Sprintf("--audit-log-maxsize=%d", auditSize),
	)
}

// hardenedManager returns the hardening flags of the controller manager or the scheduler. address
// is a loopback address, so only processes in the cluster's network namespace can connect to their
// servers.
func hardenedManager(d dirs, name, address string) []string {
	return append(servingFlags(), "--bind-address="+address,
		"--tls-cert-file="+d.pki(name+".crt"), "--tls-private-key-file="+d.pki(name+".key"),
		"--client-ca-file="+d.pki("ca.crt"))
}

// auditPolicy records which client changed which object or read secret data, and which requests
// were rejected. It omits routine requests of the cluster's own components. It records no request
// or response bodies, because they can contain secrets.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi/*", "/metrics"]
- level: None
  resources:
  - {group: coordination.k8s.io, resources: [leases]}
  - {group: "", resources: [events]}
  - {group: events.k8s.io, resources: [events]}
- level: Metadata
  resources:
  - {group: "", resources: [secrets, configmaps, serviceaccounts/token]}
  - {group: authentication.k8s.io}
- level: None
  users: ["system:kube-controller-manager", "system:kube-scheduler", "system:apiserver"]
  verbs: [get, list, watch]
- level: None
  userGroups: ["system:nodes", "keelson:proxies", "system:serviceaccounts:kube-system"]
  verbs: [get, list, watch]
- level: None
  userGroups: ["system:nodes"]
  verbs: [update, patch]
  resources:
  - {group: "", resources: [nodes/status, pods/status]}
- level: None
  resources: [{group: authorization.k8s.io}]
- level: Metadata
`
