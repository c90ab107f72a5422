// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"keelson.dev/keelson/pkg/apiserver/nodeauth"
)

// nodeRestriction confines what kubelets write to their node and its pods.
type nodeRestriction struct {
	*admission.Handler
	client kubernetes.Interface
	authz  authorizer.Authorizer
}

func newNodeRestriction(deps Deps) (admission.Interface, error) {
	return &nodeRestriction{admission.NewHandler(admission.Create, admission.Update, admission.Delete), deps.Client, deps.Authorizer}, nil
}

func forbid(a admission.Attributes, format string, args ...any) error {
	return admission.NewForbidden(a, fmt.Errorf(format, args...))
}

// Admit refuses what is another node's.
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

// Validate refuses to delete what is another node's: of a deletion it is known here which object goes.
func (p *nodeRestriction) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	node, isNode := nodeauth.Identity(a.GetUserInfo())
	gr := a.GetResource().GroupResource()
	if !isNode || a.GetOperation() != admission.Delete || gr.Group != resourcev1.GroupName || gr.Resource != "resourceslices" {
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
			pod, err := p.client.CoreV1().Pods(a.GetNamespace()).Get(ctx, a.GetName(), metav1.GetOptions{})
			if err != nil {
				return refused(a, "pod", a.GetName(), err)
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

// refused says that something does not exist, and forbids what cannot be checked.
func refused(a admission.Attributes, kind, name string, err error) error {
	if apierrors.IsNotFound(err) {
		return missing(kind, name)
	}
	return admission.NewForbidden(a, err)
}

// missing says that something does not exist in the words of caches, which call it by
// its kind.
func missing(kind, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
}

func (p *nodeRestriction) mirrorPod(ctx context.Context, node string, a admission.Attributes) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return forbid(a, "unexpected type %T", a.GetObject())
	}
	if !mirror(pod) {
		return forbid(a, "pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node)
	}
	if pod.Spec.NodeName != node {
		return forbid(a, "node %q can only create pods with spec.nodeName set to itself", node)
	}
	if len(pod.OwnerReferences) > 1 {
		return forbid(a, "node %q can only create pods with a single owner reference set to itself", node)
	}
	if len(pod.OwnerReferences) == 0 {
		return forbid(a, "node %q can only create pods with an owner reference set to itself", node)
	}
	owner := pod.OwnerReferences[0]
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node:
		return forbid(a, "node %q can only create pods with an owner reference set to itself", node)
	case owner.Controller == nil || !*owner.Controller:
		return forbid(a, "node %q can only create pods with a controller owner reference set to itself", node)
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return forbid(a, "node %q must not set blockOwnerDeletion on an owner reference", node)
	}
	obj, err := p.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return missing("node", node)
	}
	if err != nil {
		return forbid(a, "error looking up node %s to verify uid: %w", node, err)
	}
	if owner.UID != obj.UID {
		return forbid(a, "node %s UID mismatch: expected %s got %s", node, owner.UID, obj.UID)
	}
	if kind := nodeauth.NeedsAPIObjects(pod); kind != "" {
		return forbid(a, "node %q can not create pods that reference %s", node, kind)
	}
	return nil
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
	pod, err := p.client.CoreV1().Pods(a.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return refused(a, "pod", name, err)
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

// forbiddenLabels are the changed labels by which a node could draw workloads
// to itself: those reserved for restrictions, and Kubernetes' own but for the
// ones that kubelets set.
func forbiddenLabels(now, was map[string]string) []string {
	var out []string
	check := func(key string) {
		domain, _, ok := strings.Cut(key, "/")
		if !ok || slices.Contains(out, key) {
			return
		}
		under := func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }
		if under(corev1.LabelNamespaceNodeRestriction) || ((under("kubernetes.io") || under("k8s.io")) && !kubeletapis.IsKubeletLabel(key)) {
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
	if !equality.Semantic.DeepEqual(plain(old), plain(obj)) {
		return forbid(a, "node %q is not allowed to update fields other than status.quantity and status.conditions", node)
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
	return nil
}

func ownSlice(node string, a admission.Attributes, obj any) error {
	s, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return forbid(a, "unexpected type %T", obj)
	}
	if s.Spec.NodeName == nil || *s.Spec.NodeName != node {
		return forbid(a, "can only %s ResourceSlice with the same NodeName as the requesting node", strings.ToLower(string(a.GetOperation())))
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
	if s := obj.Spec.SignerName; s != certificatesv1.KubeletServingSignerName && s != certificatesv1.KubeAPIServerClientKubeletSignerName {
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

// tokens lets a node have tokens bound to its own pods, for audiences that they
// mount or that it is authorized for.
func (p *nodeRestriction) tokens(ctx context.Context, a admission.Attributes, node string) error {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "token" {
		return nil
	}
	tr, ok := a.GetObject().(*authenticationv1.TokenRequest)
	if !ok {
		return forbid(a, "unexpected type %T", a.GetObject())
	}
	ref := tr.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return forbid(a, "node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return forbid(a, "node requested token with a pod binding without a uid")
	}
	pod, err := p.client.CoreV1().Pods(a.GetNamespace()).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return refused(a, "pod", ref.Name, err)
	}
	if ref.UID != pod.UID {
		return forbid(a, "the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	}
	if pod.Spec.NodeName != node {
		return forbid(a, "node requested token bound to a pod scheduled on a different node")
	}
	return p.audience(ctx, a, tr, pod)
}

func (p *nodeRestriction) audience(ctx context.Context, a admission.Attributes, tr *authenticationv1.TokenRequest, pod *corev1.Pod) error {
	if len(tr.Spec.Audiences) > 1 {
		return forbid(a, "node may only request 0 or 1 audiences")
	}
	audience := ""
	if len(tr.Spec.Audiences) == 1 {
		audience = tr.Spec.Audiences[0]
	}
	mounted, err := p.mountsAudience(ctx, pod, audience)
	if err != nil {
		return forbid(a, "error validating audience %q: %w", audience, err)
	}
	if mounted {
		return nil
	}
	decision, _, err := p.authz.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "request-serviceaccounts-token-audience", Namespace: a.GetNamespace(),
		APIVersion: "v1", Resource: audience, Name: a.GetName(), ResourceRequest: true,
	})
	user := a.GetUserInfo().GetName()
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return forbid(a, "audience %q not found in pod spec volume, error authorizing %s to request tokens for this audience: %w", audience, user, err)
	}
	return forbid(a, "audience %q not found in pod spec volume, %s is not authorized to request tokens for this audience", audience, user)
}

// mountsAudience reports whether a volume of the pod, or the CSI driver of one,
// asks for tokens of audience. What is not found is an error only if none does.
func (p *nodeRestriction) mountsAudience(ctx context.Context, pod *corev1.Pod, audience string) (bool, error) {
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected != nil {
			for _, s := range v.Projected.Sources {
				if s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience {
					return true, nil
				}
			}
		}
		driver, err := p.driver(ctx, pod, v)
		if driver != nil && slices.ContainsFunc(driver.Spec.TokenRequests, func(t storagev1.TokenRequest) bool { return t.Audience == audience }) {
			return true, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return false, utilerrors.NewAggregate(errs)
}

// driver is the CSI driver of a volume, or of the one behind a claim; nil when there is none.
func (p *nodeRestriction) driver(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (*storagev1.CSIDriver, error) {
	name, claim := "", ""
	switch {
	case v.CSI != nil:
		name = v.CSI.Driver
	case v.PersistentVolumeClaim != nil:
		claim = v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		claim = pod.Name + "-" + v.Name
	}
	if claim != "" {
		pvc, err := p.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return nil, lookedUp("persistentvolumeclaim", claim, err)
		}
		if pvc.Spec.VolumeName == "" {
			return nil, missing("persistentvolume", "")
		}
		pv, err := p.client.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return nil, lookedUp("persistentvolume", pvc.Spec.VolumeName, err)
		}
		if pv.Spec.CSI != nil {
			name = pv.Spec.CSI.Driver
		}
	}
	if name == "" {
		return nil, nil
	}
	driver, err := p.client.StorageV1().CSIDrivers().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: storagev1.GroupName, Resource: "csidriver"}, name)
	}
	return driver, err
}

// lookedUp is err, in the words of caches if something does not exist.
func lookedUp(kind, name string, err error) error {
	if apierrors.IsNotFound(err) {
		return missing(kind, name)
	}
	return err
}
