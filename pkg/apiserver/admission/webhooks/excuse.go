// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// excuse is the reason why a request may be admitted without calling a failing webhook. Most
// requests have none, and then it is empty.
type excuse string

const (
	ownNamespace  excuse = "it is in the webhook's own namespace"
	serverItself  excuse = "the request is from the API server itself"
	systemSpace   excuse = "the request is from a system component, in a system namespace"
	systemObjects excuse = "the request is from a system component, for a resource that keeps nodes alive"
	nodesPods     excuse = "the request is a node's report on its pods"
)

// vital returns the resources that system components must be able to write, in any namespace, to
// keep nodes alive.
func vital() []schema.GroupResource {
	return []schema.GroupResource{
		{Resource: "nodes"}, {Resource: "events"}, {Group: "events.k8s.io", Resource: "events"},
		{Group: "coordination.k8s.io", Resource: "leases"},
		{Group: "storage.k8s.io", Resource: "csinodes"},
		{Group: "resource.k8s.io", Resource: "resourceslices"},
		{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"},
		{Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
	}
}

// excused returns the excuse of a request (the reason why it may skip a failing webhook), or "" if
// it has none. namespace is the namespace of the webhook's service, or empty if the webhook has no
// service.
func excused(a admission.Attributes, namespace string) excuse {
	if namespace != "" && in(a, namespace) {
		return ownNamespace
	}
	u := a.GetUserInfo()
	switch {
	case u == nil:
		return ""
	case u.GetName() == user.APIServerUser:
		return serverItself
	case !component(u):
		return ""
	case !node(u) && (in(a, metav1.NamespaceSystem) || in(a, corev1.NamespaceNodeLease)):
		return systemSpace // nodes get an excuse only in the cases below
	case slices.Contains(vital(), a.GetResource().GroupResource()):
		return systemObjects
	case node(u) && podReport(a):
		return nodesPods
	}
	return ""
}

// in reports whether a request is for an object in namespace, or for the namespace itself.
func in(a admission.Attributes, namespace string) bool {
	if a.GetResource().GroupResource() == (schema.GroupResource{Resource: "namespaces"}) {
		return a.GetName() == namespace
	}
	return a.GetNamespace() == namespace
}

// component reports whether u is a system component: a node, the controller manager, the scheduler,
// or a service account of kube-system. The proxies of nodes are not included: an attacker who
// controls a node has the credentials of its proxy, and nodes stay alive without the writes of
// proxies.
func component(u user.Info) bool {
	switch u.GetName() {
	case user.KubeControllerManager, user.KubeScheduler:
		return true
	}
	return node(u) || strings.HasPrefix(u.GetName(), serviceaccount.MakeUsername(metav1.NamespaceSystem, ""))
}

func node(u user.Info) bool {
	return strings.HasPrefix(u.GetName(), "system:node:") && slices.Contains(u.GetGroups(), user.NodesGroup)
}

// podReport reports whether a request is one by which a node reports on its pods: it writes the
// status of a pod, creates or deletes the mirror of a static pod, or completes the deletion of a
// pod. Requests for tokens of service accounts are included.
func podReport(a admission.Attributes) bool {
	switch gr := a.GetResource().GroupResource(); {
	case gr == schema.GroupResource{Resource: "serviceaccounts"}:
		return a.GetSubresource() == "token"
	case gr != schema.GroupResource{Resource: "pods"}:
		return false
	case a.GetSubresource() == "status":
		return true
	case a.GetSubresource() != "":
		return false
	case a.GetOperation() == admission.Create:
		return mirror(a.GetObject())
	case a.GetOperation() == admission.Delete:
		return mirror(a.GetOldObject()) || ending(a.GetOldObject())
	}
	return false
}

func mirror(obj runtime.Object) bool {
	m, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	_, ok := m.GetAnnotations()[corev1.MirrorPodAnnotationKey]
	return ok
}

func ending(obj runtime.Object) bool {
	m, err := meta.Accessor(obj)
	return err == nil && m.GetDeletionTimestamp() != nil
}
