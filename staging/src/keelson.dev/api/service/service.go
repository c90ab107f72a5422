// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service has the names that Keelson's components use for Services and Ingresses, in
// addition to those of Kubernetes.
package service

// LoadBalancerClass is a value of a Service's spec.loadBalancerClass. Nodes announce the addresses
// of such a Service on their local network. They do the same for a Service without a class if the
// controller manager is configured with a range of addresses.
const LoadBalancerClass = "keelson.dev/announced"

// IngressController is a value of spec.controller in an IngressClass. Keelson's ingress proxy
// serves the Ingresses of such classes.
const IngressController = "keelson.dev/ingress"

// ShareHosts is the annotation of an Ingress that lets other namespaces add rules to its hosts. Its
// value is a comma-separated list of namespaces, or "*". It has an effect only in the namespace that
// owns the host: that of the first Ingress with the host, or with a wildcard that covers it.
const ShareHosts = "ingress.keelson.dev/share-hosts"

// MaxIngressSecrets is the maximum number of Secrets with certificates that the Ingresses of one
// namespace may use. The controller manager lets the ingress proxy read only this number of Secrets
// for each namespace, the first ones in order of their names.
const MaxIngressSecrets = 100

// AnnouncedBy is an annotation of a Service with the name of the node that announces the
// addresses in its status.loadBalancer. The controller manager writes it, and the proxy reads it.
const AnnouncedBy = "loadbalancer.keelson.dev/announced-by"
