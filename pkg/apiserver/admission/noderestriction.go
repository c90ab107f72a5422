// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"keelson.dev/keelson/pkg/apiserver/nodeauth"
)

// nodeRestriction limits the writes of a kubelet to its own Node and to objects that belong to its
// pods.
type nodeRestriction struct {
	*admission.Handler
	client kubernetes.Interface
	authz  authorizer.UnconditionalAuthorizer
}

func newNodeRestriction(deps Deps) (admission.Interface, error) {
	return &nodeRestriction{admission.NewHandler(admission.Create, admission.Update, admission.Delete),
		deps.Client, deps.Authorizer}, nil
}

func forbid(a admission.Attributes, format string, args ...any) error {
	return admission.NewForbidden(a, fmt.Errorf(format, args...))
}

// Admit rejects writes of objects that do not belong to the node, except deletes of ResourceSlices,
// which Validate rejects.
func (p *nodeRestriction) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	node, isNode := nodeauth.Identity(a.GetUserInfo())
	if !isNode {
		return nil
	}
	if node == "" {
		return forbid(a, "could not determine node from user %q", a.GetUserInfo().GetName())
	}
	gr := a.GetResource().GroupResource()
	switch gr.Group + "/" + gr.Resource {
	case "/pods":
		return p.pods(ctx, node, a)
	case "/nodes":
		return nodes(node, a)
	case "/persistentvolumeclaims":
		return claims(node, a)
	case "/serviceaccounts":
		return p.tokens(ctx, a, node)
	case "certificates.k8s.io/podcertificaterequests":
		return p.podCertificate(ctx, node, a)
	case "coordination.k8s.io/leases":
		return leases(node, a)
	case "storage.k8s.io/csinodes":
		return csiNodes(node, a)
	case "resource.k8s.io/resourceslices":
		if a.GetOperation() == admission.Create {
			return ownSlice(node, a, a.GetObject())
		}
	case "certificates.k8s.io/certificatesigningrequests":
		return signingRequests(node, a)
	}
	return nil
}

// Validate rejects deletes of ResourceSlices that do not belong to the node. Admit cannot do this,
// because only Validate gets the object that is deleted.
func (p *nodeRestriction) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	node, isNode := nodeauth.Identity(a.GetUserInfo())
	gr := a.GetResource().GroupResource()
	if !isNode || a.GetOperation() != admission.Delete || gr.Group != resourcev1.GroupName ||
		gr.Resource != "resourceslices" {
		return nil
	}
	return ownSlice(node, a, a.GetOldObject())
}

func (p *nodeRestriction) pods(ctx context.Context, node string, a admission.Attributes) error {
	switch a.GetSubresource() {
	case "":
		switch a.GetOperation() {
		case admission.Create:
			return p.mirrorPod(ctx, node, a)
		case admission.Delete:
			pod, err := p.pod(ctx, a, a.GetName())
			if err != nil {
				return err
			}
			if pod.Spec.NodeName != node {
				return forbid(a, "node %q can only delete pods with spec.nodeName set to itself", node)
			}
			return nil
		}
		return forbid(a, "unexpected operation %q, node %q can only create and delete mirror pods", a.GetOperation(), node)
	case "status":
		return podStatus(node, a)
	case "eviction":
		return p.eviction(ctx, node, a)
	}
	return forbid(a, "unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.GetSubresource())
}

// pod returns the pod with the given name. A node wants to write it or a subresource of it.
func (p *nodeRestriction) pod(ctx context.Context, a admission.Attributes, name string) (*corev1.Pod, error) {
	pod, err := lookUp(ctx, schema.GroupResource{Resource: "pod"}, name, p.client.CoreV1().Pods(a.GetNamespace()).Get)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, admission.NewForbidden(a, err)
	}
	return pod, err
}

// lookUp returns an object. If the object does not exist or the name is invalid, it returns
// NotFound. As in errors of Kubernetes' caches, that error contains the kind instead of the
// resource.
func lookUp[T any](ctx context.Context, kind schema.GroupResource, name string,
	get func(context.Context, string, metav1.GetOptions) (*T, error)) (*T, error) {
	if name == "" || len(path.IsValidPathSegmentName(name)) > 0 {
		return nil, apierrors.NewNotFound(kind, name)
	}
	obj, err := get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(kind, name)
	}
	return obj, err
}

func podStatus(node string, a admission.Attributes) error {
	if a.GetOperation() != admission.Update {
		return forbid(a, "unexpected operation %q", a.GetOperation())
	}
	old, ok := a.GetOldObject().(*corev1.Pod)
	if !ok {
		return forbid(a, "unexpected type %T", a.GetOldObject())
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return forbid(a, "unexpected type %T", a.GetObject())
	}
	switch {
	case old.Spec.NodeName != node:
		return forbid(a, "node %q can only update pod status for pods with spec.nodeName set to itself", node)
	case !labels.Equals(old.Labels, pod.Labels):
		return forbid(a, "node %q cannot update labels through pod status", node)
	case !equality.Semantic.DeepEqual(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses):
		return forbid(a, "node %q cannot update resource claim statues", node)
	case !equality.Semantic.DeepEqual(old.Status.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus):
		return forbid(a, "node %q cannot update extended resource claim status", node)
	case !equality.Semantic.DeepEqual(old.Status.NodeAllocatableResourceClaimStatuses,
		pod.Status.NodeAllocatableResourceClaimStatuses):
		return forbid(a, "node %q cannot update node allocatable resource claim statuses", node)
	}
	return nil
}

func (p *nodeRestriction) eviction(ctx context.Context, node string, a admission.Attributes) error {
	if a.GetOperation() != admission.Create {
		return forbid(a, "unexpected operation %s", a.GetOperation())
	}
	name := a.GetName()
	if e, ok := a.GetObject().(*policyv1.Eviction); ok && name == "" {
		name = e.Name
	}
	if name == "" {
		return forbid(a, "could not determine pod from request data")
	}
	pod, err := p.pod(ctx, a, name)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName != node {
		return forbid(a, "node %s can only evict pods with spec.nodeName set to itself", node)
	}
	return nil
}

func nodes(node string, a admission.Attributes) error {
	name := a.GetName()
	obj, isNode := a.GetObject().(*corev1.Node)
	if name == "" && isNode {
		name = obj.Name
	}
	if name != node {
		return forbid(a, "node %q is not allowed to modify node %q", node, name)
	}
	switch a.GetOperation() {
	case admission.Create:
		if !isNode {
			return forbid(a, "unexpected type %T", a.GetObject())
		}
		if obj.Spec.ConfigSource != nil {
			return forbid(a, "node %q is not allowed to create pods with a non-nil configSource", node)
		}
		if bad := forbiddenLabels(obj.Labels, nil); len(bad) > 0 {
			return forbid(a, "node %q is not allowed to set the following labels: %s", node, strings.Join(bad, ", "))
		}
	case admission.Update:
		old, ok := a.GetOldObject().(*corev1.Node)
		if !ok || !isNode {
			return forbid(a, "unexpected type %T", a.GetObject())
		}
		return nodeUpdate(node, a, obj, old)
	}
	return nil
}

func nodeUpdate(node string, a admission.Attributes, obj, old *corev1.Node) error {
	switch {
	case obj.Spec.ConfigSource != nil && !equality.Semantic.DeepEqual(obj.Spec.ConfigSource, old.Spec.ConfigSource):
		return forbid(a, "node %q is not allowed to update configSource to a new non-nil configSource", node)
	case !equality.Semantic.DeepEqual(obj.Spec.Taints, old.Spec.Taints):
		return forbid(a, "node %q is not allowed to modify taints", node)
	case !equality.Semantic.DeepEqual(obj.OwnerReferences, old.OwnerReferences):
		return forbid(a, "node %q is not allowed to modify ownerReferences", node)
	}
	if bad := forbiddenLabels(obj.Labels, old.Labels); len(bad) > 0 {
		return forbid(a, "is not allowed to modify labels: %s", strings.Join(bad, ", "))
	}
	return nil
}

// forbiddenLabels returns the changed labels by which a node could attract pods: labels in the
// domain node-restriction.kubernetes.io, and labels in kubernetes.io and k8s.io that kubelets do
// not set.
func forbiddenLabels(now, was map[string]string) []string {
	var out []string
	check := func(key string) {
		domain, _, ok := strings.Cut(key, "/")
		if !ok || slices.Contains(out, key) {
			return
		}
		under := func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }
		if under(corev1.LabelNamespaceNodeRestriction) ||
			((under("kubernetes.io") || under("k8s.io")) && !kubeletapis.IsKubeletLabel(key)) {
			out = append(out, key)
		}
	}
	for k, v := range now {
		if w, ok := was[k]; !ok || w != v {
			check(k)
		}
	}
	for k := range was {
		if _, ok := now[k]; !ok {
			check(k)
		}
	}
	slices.Sort(out)
	return out
}

func claims(node string, a admission.Attributes) error {
	if a.GetSubresource() != "status" {
		return forbid(a, "may only update PVC status")
	}
	if a.GetOperation() != admission.Update {
		return forbid(a, "unexpected operation %q", a.GetOperation())
	}
	old, ok := a.GetOldObject().(*corev1.PersistentVolumeClaim)
	obj, ok2 := a.GetObject().(*corev1.PersistentVolumeClaim)
	if !ok || !ok2 {
		return forbid(a, "unexpected type %T", a.GetObject())
	}
	plain := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		c = c.DeepCopy()
		c.TypeMeta, c.ResourceVersion, c.ManagedFields = metav1.TypeMeta{}, "", nil
		c.Status.Capacity, c.Status.Conditions = nil, nil
		c.Status.AllocatedResourceStatuses, c.Status.AllocatedResources = nil, nil
		return c
	}
	if was, is := plain(old), plain(obj); !equality.Semantic.DeepEqual(was, is) {
		return forbid(a, "node %q is not allowed to update fields other than status.quantity and status.conditions: %v", node,
			diff.Diff(was, is))
	}
	return nil
}

func leases(node string, a admission.Attributes) error {
	if a.GetNamespace() != corev1.NamespaceNodeLease {
		return forbid(a, "can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	name := a.GetName()
	if l, ok := a.GetObject().(*coordinationv1.Lease); ok && a.GetOperation() == admission.Create {
		name = l.Name
	}
	if name != node {
		return forbid(a, "can only access node lease with the same name as the requesting node")
	}
	return nil
}

func csiNodes(node string, a admission.Attributes) error {
	name := a.GetName()
	if o, ok := a.GetObject().(metav1.Object); ok && a.GetOperation() == admission.Create {
		name = o.GetName()
	}
	if name != node {
		return forbid(a, "can only access CSINode with the same name as the requesting node")
	}
	if a.GetSubresource() == "status" {
		return forbid(a, "CSIVolumeHealth feature gate is disabled") // the feature is off by default
	}
	return nil
}

func ownSlice(node string, a admission.Attributes, obj any) error {
	s, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return forbid(a, "unexpected type %T", obj)
	}
	if s.Spec.NodeName == nil || *s.Spec.NodeName != node {
		return forbid(a, "can only %s ResourceSlice with the same NodeName as the requesting node",
			strings.ToLower(string(a.GetOperation())))
	}
	return nil
}

func signingRequests(node string, a admission.Attributes) error {
	if a.GetOperation() != admission.Create {
		return nil
	}
	obj, ok := a.GetObject().(csr)
	if !ok {
		return forbid(a, "unexpected type %T", a.GetObject())
	}
	if s := obj.Spec.SignerName; s != certificatesv1.KubeletServingSignerName &&
		s != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	request, err := parseRequest(obj.Spec.Request)
	if err != nil {
		return forbid(a, "unable to parse csr: %w", err)
	}
	if request.Subject.CommonName != "system:node:"+node {
		return forbid(a, "can only create a node CSR with CN=system:node:%s", node)
	}
	return nil
}
