// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"fmt"
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

// servingArgs returns the hardening flags that apply to every server of the control plane.
func servingArgs() []string {
	return []string{
		"--profiling=false", "--tls-min-version=" + tlsVersion, "--tls-cipher-suites=" + strings.Join(tlsSuites(), ","),
		fmt.Sprintf("--http2-max-streams-per-connection=%d", streamsPerConnection),
	}
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
