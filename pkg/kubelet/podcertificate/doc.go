// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podcertificate obtains the private keys and certificates of pods, for the podCertificate
// sources of projected volumes.
//
// For each source, a Manager generates a private key and creates a PodCertificateRequest. A signer,
// which is not part of the kubelet, then issues a certificate or denies the request. From the time
// that the signer has chosen (status.beginRefreshAt), the Manager requests the next certificate,
// with a new key. Until that is issued, the pod keeps its old key and certificate, even if the
// certificate has expired.
//
// Invariants:
//
//   - A request that the signer has denied or failed is final: its source gets an error and no
//     further request, as in Kubernetes. A new pod is needed.
//   - A Manager stores keys only in memory. After a restart of the kubelet, all sources get new
//     keys and certificates.
//   - A key and its certificates are always returned together.
//   - Requests are watched only while at least one source is tracked. The watch selects the
//     requests of this node.
//   - All maps are bounded by the sources of the node's pods. Forget removes those of a pod.
//
// Requests are not deleted here. The garbage collector deletes them together with their pod, and a
// controller deletes them earlier when they have served their purpose.
package podcertificate
