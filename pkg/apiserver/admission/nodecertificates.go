// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// podCertificate checks a node's request for a certificate. It must be for a pod that runs on the
// node, with the pod's service account, and from a signer that a volume of the pod uses, or that the
// node is authorized to use.
//
// A UID that differs from the stored one may be newer than what this server has read. Errors about
// UIDs and missing objects are therefore not Forbidden, so that the kubelet tries again.
func (p *nodeRestriction) podCertificate(ctx context.Context, node string, a admission.Attributes) error {
	if a.GetOperation() != admission.Create {
		return forbid(a, "unexpected operation %v", a.GetOperation())
	}
	if a.GetSubresource() != "" {
		return forbid(a, "unexpected subresource %v", a.GetSubresource())
	}
	req, ok := a.GetObject().(*certificatesv1.PodCertificateRequest)
	if !ok {
		return forbid(a, "unexpected type %T", a.GetObject())
	}
	if err := p.certificateNode(ctx, a, node, req); err != nil {
		return err
	}
	pod, err := p.certificatePod(ctx, a, req)
	if err != nil {
		return err
	}
	if err := p.certificateAccount(ctx, a, req, pod); err != nil {
		return err
	}
	return p.certificateSigner(ctx, a, req, pod)
}

// named returns an object that a pod certificate request names. The argument what is its kind in
// errors.
func named[T any](ctx context.Context, a admission.Attributes, what, name, shown string,
	get func(context.Context, string, metav1.GetOptions) (*T, error)) (*T, error) {
	obj, err := lookUp(ctx, schema.GroupResource{Resource: strings.ReplaceAll(what, " ", "")}, name, get)
	if err == nil {
		return obj, nil
	}
	// Only the text of the error is kept, as in Kubernetes: the response to the node has code 500, not
	// that of err.
	failed := fmt.Errorf("while retrieving %s %q named in the PodCertificateRequest: %s", what, shown, err.Error())
	if apierrors.IsNotFound(err) {
		return nil, failed
	}
	return nil, admission.NewForbidden(a, failed)
}

// shownPod returns the namespace and name of the pod of a request, for errors.
func shownPod(a admission.Attributes, req *certificatesv1.PodCertificateRequest) string {
	return a.GetNamespace() + "/" + req.Spec.PodName
}

func (p *nodeRestriction) certificateNode(ctx context.Context, a admission.Attributes, node string,
	req *certificatesv1.PodCertificateRequest) error {
	name := string(req.Spec.NodeName)
	if name != node {
		return forbid(a, "PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", name, node)
	}
	stored, err := named(ctx, a, "node", name, name, p.client.CoreV1().Nodes().Get)
	if err != nil {
		return err
	}
	if stored.UID != req.Spec.NodeUID {
		return fmt.Errorf("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)",
			shownPod(a, req), req.Spec.NodeUID, stored.UID)
	}
	return nil
}

func (p *nodeRestriction) certificatePod(ctx context.Context, a admission.Attributes,
	req *certificatesv1.PodCertificateRequest) (*corev1.Pod, error) {
	shown := shownPod(a, req)
	pod, err := named(ctx, a, "pod", req.Spec.PodName, shown, p.client.CoreV1().Pods(a.GetNamespace()).Get)
	if err != nil {
		return nil, err
	}
	if req.Spec.PodUID != pod.UID {
		return nil, fmt.Errorf("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q",
			shown, req.Spec.PodUID, pod.UID)
	}
	if pod.Spec.NodeName != string(req.Spec.NodeName) {
		return nil, forbid(a, "pod %q is not running on node %q named in the PodCertificateRequest", shown,
			req.Spec.NodeName)
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return nil, forbid(a, "pod %q is a mirror pod", shown)
	}
	return pod, nil
}

func (p *nodeRestriction) certificateAccount(ctx context.Context, a admission.Attributes,
	req *certificatesv1.PodCertificateRequest, pod *corev1.Pod) error {
	name := req.Spec.ServiceAccountName
	if name != pod.Spec.ServiceAccountName {
		return forbid(a, "PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running "+
			"pod (%q)", shownPod(a, req), name, pod.Spec.ServiceAccountName)
	}
	account, err := named(ctx, a, "service account", name, a.GetNamespace()+"/"+name,
		p.client.CoreV1().ServiceAccounts(a.GetNamespace()).Get)
	if err != nil {
		return err
	}
	if req.Spec.ServiceAccountUID != account.UID {
		return fmt.Errorf("PodCertificateRequest for pod %q names service account UID %q, which differs from the running "+
			"service account (%q)", shownPod(a, req), req.Spec.ServiceAccountUID, account.UID)
	}
	return nil
}

func (p *nodeRestriction) certificateSigner(ctx context.Context, a admission.Attributes,
	req *certificatesv1.PodCertificateRequest, pod *corev1.Pod) error {
	signer := req.Spec.SignerName
	if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.PodCertificate != nil && s.PodCertificate.SignerName == signer
		})
	}) {
		return nil
	}
	decision, _, err := p.authz.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "request-serviceaccounts-podcertificate-signer", Namespace: a.GetNamespace(),
		APIGroup: a.GetResource().Group, APIVersion: a.GetResource().Version,
		// Rules of RBAC cannot name a resource with a slash.
		Resource: strings.ReplaceAll(signer, "/", ":"), Name: req.Spec.ServiceAccountName, ResourceRequest: true,
	})
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return forbid(a, "error authorizing %s to request podcertificaterequests for signer %q: %w",
			a.GetUserInfo().GetName(), signer, err)
	}
	return forbid(a, "pod %q does not mount a podCertificate projected volume for signer %q", shownPod(a, req), signer)
}
