// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"keelson.dev/keelson/pkg/api/intree"
)

// tokens checks a node's request for a token. The token must be bound to a pod on the node. Its
// audience must be one that a volume of the pod uses, or that the node is authorized to request.
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
	pod, err := p.pod(ctx, a, ref.Name)
	if err != nil {
		return err
	}
	if ref.UID != pod.UID {
		return forbid(a, "the UID in the bound object reference (%s) does not match the UID in record. The "+
			"object might have been deleted and then recreated", ref.UID)
	}
	if pod.Spec.NodeName != node {
		return forbid(a, "node requested token bound to a pod scheduled on a different node")
	}
	return p.audience(ctx, a, tr, pod)
}

func (p *nodeRestriction) audience(ctx context.Context, a admission.Attributes,
	tr *authenticationv1.TokenRequest, pod *corev1.Pod) error {
	if len(tr.Spec.Audiences) > 1 {
		return forbid(a, "node may only request 0 or 1 audiences")
	}
	audience := ""
	if len(tr.Spec.Audiences) == 1 {
		audience = tr.Spec.Audiences[0]
	}
	mounted, failed := p.mountsAudience(ctx, pod, audience)
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
	case failed != nil:
		return forbid(a, "error validating audience %q: %w", audience, failed)
	case err != nil:
		return forbid(a, "error authorizing %s to request tokens for audience %q: %w", user, audience, err)
	}
	return forbid(a, "%s is not authorized to request tokens for audience %q", user, audience)
}

// mountsAudience reports whether a volume of the pod uses tokens for audience, either a projected
// volume or one whose CSI driver needs such tokens. If an object of a volume cannot be read, it
// continues with the other volumes, and returns the error only if none of these uses such tokens.
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
		if driver != nil && slices.ContainsFunc(driver.Spec.TokenRequests, func(t storagev1.TokenRequest) bool {
			return t.Audience == audience
		}) {
			return true, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return false, utilerrors.NewAggregate(errs)
}

// driver returns the CSI driver of a volume, or of the volume that is bound to its claim. It
// returns nil if the volume has no CSI driver.
func (p *nodeRestriction) driver(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (*storagev1.CSIDriver, error) {
	name, claim := intree.VolumeDriver(&v.VolumeSource), ""
	switch {
	case v.CSI != nil:
		name = v.CSI.Driver
	case v.PersistentVolumeClaim != nil:
		claim = v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		claim = pod.Name + "-" + v.Name
	}
	if claim != "" {
		pvc, err := lookUp(ctx, schema.GroupResource{Resource: "persistentvolumeclaim"}, claim,
			p.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get)
		if err != nil {
			return nil, err
		}
		pv, err := lookUp(ctx, schema.GroupResource{Resource: "persistentvolume"}, pvc.Spec.VolumeName,
			p.client.CoreV1().PersistentVolumes().Get)
		if err != nil {
			return nil, err
		}
		name = intree.PersistentVolumeDriver(&pv.Spec.PersistentVolumeSource)
		if pv.Spec.CSI != nil {
			name = pv.Spec.CSI.Driver
		}
	}
	if name == "" {
		return nil, nil
	}
	return lookUp(ctx, schema.GroupResource{Group: storagev1.GroupName, Resource: "csidriver"}, name,
		p.client.StorageV1().CSIDrivers().Get)
}
