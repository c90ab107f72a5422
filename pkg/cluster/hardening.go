// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"strings"
)

// What makes a cluster safer than the programs are when they are started alone.

// tlsSuites are the suites of TLS 1.2 that the cluster's servers accept: with
// forward secrecy and authenticated encryption. Those of TLS 1.3 are all good.
func tlsSuites() []string {
	return []string{
		"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
	}
}

const tlsVersion = "VersionTLS12"

// Audit logs of a cluster: at most so many days, files and megabytes of each.
const (
	auditDays  = 30
	auditFiles = 10
	auditSize  = 100
)

// streamsPerConnection is how many requests a client may have in one connection.
const streamsPerConnection = 250

// servingFlags are those of every server that takes them.
func servingFlags() []string {
	return []string{
		"--profiling=false", "--tls-min-version=" + tlsVersion, "--tls-cipher-suites=" + strings.Join(tlsSuites(), ","),
		fmt.Sprintf("--http2-max-streams-per-connection=%d", streamsPerConnection),
	}
}

// hardenedAPIServer are the flags by which the API server differs from one that
// is started alone.
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
		// Nobody's webhook, APIService or Node leads the server to itself, to its
		// machine or to a cloud's metadata.
		"--outbound-deny="+strings.Join(own, ","),
		"--encryption-provider-config="+d.encryption(), "--encryption-provider-config-automatic-reload=true",
		"--audit-policy-file="+d.file("audit-policy.yaml"), "--audit-log-path="+d.auditLog(r.suffix),
		fmt.Sprintf("--audit-log-maxage=%d", auditDays), fmt.Sprintf("--audit-log-maxbackup=%d", auditFiles), fmt.Sprintf("--audit-log-maxsize=%d", auditSize),
	)
}

// hardenedManager are the flags of a process that only the API server's own
// machine asks for metrics: the controller manager and the scheduler.
func hardenedManager(d dirs, name, address string) []string {
	return append(servingFlags(), "--bind-address="+address,
		"--tls-cert-file="+d.pki(name+".crt"), "--tls-private-key-file="+d.pki(name+".key"), "--client-ca-file="+d.pki("ca.crt"))
}

// auditPolicy takes down who changed what, who read what is secret, and who was
// refused; and not what the cluster does with itself all day. No bodies: they
// hold secrets.
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
