// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service has the words by which Keelson's processes agree about Services, beyond
// those of Kubernetes.
package service

// LoadBalancerClass is the class of load balancers, in a Service's spec.loadBalancerClass, that are
// addresses which nodes announce on their link. A Service without a class means it too, where
// the controller manager has addresses to give.
const LoadBalancerClass = "keelson.dev/announced"

// IngressController is the controller of IngressClasses, in spec.controller, whose Ingresses
// Keelson's ingress proxy serves.
const IngressController = "keelson.dev/ingress"

// ShareHosts is the annotation of an Ingress that lets other namespaces add rules to its hosts. Its
// value is a comma-separated list of namespaces, or "*". It has an effect only in the namespace that
// owns the host.
const ShareHosts = "ingress.keelson.dev/share-hosts"

// MaxIngressSecrets is how many Secrets the Ingresses of one namespace may use for certificates. The
// controller manager lets the ingress proxy read that many Secrets, in order of their names.
const MaxIngressSecrets = 100

// AnnouncedBy is the annotation of a Service that names the node that answers for the
// addresses in its status.loadBalancer. The controller manager writes it, the proxy reads it.
const AnnouncedBy = "loadbalancer.keelson.dev/announced-by"
