// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service has the names that Keelson's components use for Services and Ingresses, in
// addition to those of Kubernetes.
package service

// LoadBalancerClass is a value of a Service's spec.loadBalancerClass. The addresses of such a
// Service are announced by nodes on their local network. A Service without a class is treated the
// same if the controller manager has a range of addresses.
const LoadBalancerClass = "keelson.dev/announced"

// IngressController is the controller of IngressClasses, in spec.controller, whose Ingresses
// Keelson's ingress proxy serves.
const IngressController = "keelson.dev/ingress"

// ShareHosts is the annotation of an Ingress that lets other namespaces add rules to its hosts. Its
// value is a comma-separated list of namespaces, or "*". It has an effect only in the namespace that
// owns the host.
const ShareHosts = "ingress.keelson.dev/share-hosts"

// MaxIngressSecrets is the maximum number of Secrets that the Ingresses of one namespace may use
// for certificates. The controller manager lets the ingress proxy read that many Secrets, in order
// of their names.
const MaxIngressSecrets = 100

// AnnouncedBy is an annotation of a Service with the name of the node that announces the
// addresses in its status.loadBalancer. The controller manager writes it, and the proxy reads it.
const AnnouncedBy = "loadbalancer.keelson.dev/announced-by"
