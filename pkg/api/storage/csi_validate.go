// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/core"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

const (
	maxDriverName         = 63
	maxNodeID             = 256
	maxAttachmentMetadata = 256 << 10
	maxErrorMessage       = 1024
	minTokenSeconds       = 600
	minUpdatePeriod       = 10
)

func validateCSIDriver(_ context.Context, d *storagev1.CSIDriver) field.ErrorList {
	r, spec, path := &report.Report{}, &d.Spec, field.NewPath("spec")
	required(r, path.Child("attachRequired"), spec.AttachRequired)
	required(r, path.Child("podInfoOnMount"), spec.PodInfoOnMount)
	required(r, path.Child("storageCapacity"), spec.StorageCapacity)
	if spec.FSGroupPolicy != nil {
		report.OneOf(r, path.Child("fsGroupPolicy"), *spec.FSGroupPolicy,
			storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	}
	tokenRequests(r, path.Child("tokenRequests"), spec.TokenRequests)
	for _, mode := range spec.VolumeLifecycleModes {
		report.OneOf(r, path.Child("volumeLifecycleModes"), mode, storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)
	}
	required(r, path.Child("seLinuxMount"), spec.SELinuxMount)
	if period := spec.NodeAllocatableUpdatePeriodSeconds; period != nil && *period < minUpdatePeriod {
		r.Invalid(path.Child("nodeAllocatableUpdatePeriodSeconds"), *period, "must be greater than or equal to 10 seconds")
	}
	if in := spec.ServiceAccountTokenInSecrets; in != nil && len(spec.TokenRequests) == 0 {
		r.Invalid(path.Child("serviceAccountTokenInSecrets"), in, "serviceAccountTokenInSecrets is set but no tokenRequests are specified")
	}
	return r.Errors
}

func validateCSIDriverUpdate(ctx context.Context, d, old *storagev1.CSIDriver) field.ErrorList {
	r, path := &report.Report{Errors: validateCSIDriver(ctx, d)}, field.NewPath("spec")
	r.Immutable(path.Child("attachRequired"), d.Spec.AttachRequired, old.Spec.AttachRequired)
	r.Immutable(path.Child("volumeLifecycleModes"), d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes)
	return r.Errors
}

func required(r *report.Report, path *field.Path, value *bool) {
	if value == nil {
		r.Required(path, "")
	}
}

func tokenRequests(r *report.Report, path *field.Path, requests []storagev1.TokenRequest) {
	audiences := sets.New[string]()
	for i, request := range requests {
		at := path.Index(i)
		if audiences.Has(request.Audience) {
			r.Duplicate(at.Child("audience"), request.Audience)
			continue
		}
		audiences.Insert(request.Audience)
		switch seconds := request.ExpirationSeconds; {
		case seconds == nil:
		case *seconds < minTokenSeconds:
			r.Invalid(at.Child("expirationSeconds"), *seconds, "may not specify a duration less than 10 minutes")
		case *seconds > 1<<32:
			r.Invalid(at.Child("expirationSeconds"), *seconds, "may not specify a duration larger than 2^32 seconds")
		}
	}
}

func validateCSINode(_ context.Context, n *storagev1.CSINode) field.ErrorList {
	r, path, names := &report.Report{}, field.NewPath("spec", "drivers"), sets.New[string]()
	for i := range n.Spec.Drivers {
		d, at := &n.Spec.Drivers[i], path.Index(i)
		driverName(r, at.Child("name"), d.Name)
		if d.NodeID == "" {
			r.Required(at.Child("nodeID"), "")
		}
		if len(d.NodeID) > maxNodeID {
			r.Invalid(at.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID))
		}
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			r.NotNegative(at.Child("allocatable", "count"), int64(*d.Allocatable.Count))
		}
		if names.Has(d.Name) {
			r.Duplicate(at.Child("name"), d.Name)
		}
		names.Insert(d.Name)
		topologyKeys(r, at, d.TopologyKeys)
	}
	return r.Errors
}

// topologyKeys reports keys at their driver: Kubernetes does not say which key.
func topologyKeys(r *report.Report, path *field.Path, keys []string) {
	seen := sets.New[string]()
	for _, key := range keys {
		if key == "" {
			r.Required(path, "")
		}
		if seen.Has(key) {
			r.Duplicate(path, key)
		}
		seen.Insert(key)
		r.QualifiedName(path, key)
	}
}

// A driver on a node may change how many volumes it takes, and nothing else.
func validateCSINodeUpdate(ctx context.Context, n, old *storagev1.CSINode) field.ErrorList {
	r := &report.Report{Errors: validateCSINode(ctx, n)}
	for i := range old.Spec.Drivers {
		for j := range n.Spec.Drivers {
			if old.Spec.Drivers[i].Name != n.Spec.Drivers[j].Name {
				continue
			}
			was, is := old.Spec.Drivers[i].DeepCopy(), n.Spec.Drivers[j].DeepCopy()
			was.Allocatable, is.Allocatable = nil, nil
			r.Immutable(field.NewPath("spec", "drivers"), is, was)
		}
	}
	return r.Errors
}

func driverName(r *report.Report, path *field.Path, name string) {
	if name == "" {
		r.Required(path, "")
		return
	}
	if len(name) > maxDriverName {
		r.TooLong(path, maxDriverName)
	}
	r.Each(path, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))
}

func validateVolumeAttachment(_ context.Context, a *storagev1.VolumeAttachment) field.ErrorList {
	r, spec, path := &report.Report{}, &a.Spec, field.NewPath("spec")
	driverName(r, path.Child("attacher"), spec.Attacher)
	attachmentSource(r, path.Child("source"), spec.Source)
	r.Subdomain(path.Child("nodeName"), spec.NodeName)

	status := field.NewPath("status")
	size := 0
	for key, value := range a.Status.AttachmentMetadata {
		size += len(key) + len(value)
	}
	if size > maxAttachmentMetadata {
		r.TooLong(status.Child("attachmentMetadata"), maxAttachmentMetadata)
	}
	volumeError(r, status.Child("attachError"), a.Status.AttachError)
	volumeError(r, status.Child("detachError"), a.Status.DetachError)
	if name := spec.Source.PersistentVolumeName; name != nil {
		r.Subdomain(field.NewPath("spec.source.persistentVolumeName"), *name)
	}
	return r.Errors
}

func validateVolumeAttachmentUpdate(ctx context.Context, a, old *storagev1.VolumeAttachment) field.ErrorList {
	r := &report.Report{Errors: validateVolumeAttachment(ctx, a)}
	r.Immutable(field.NewPath("spec"), a.Spec, old.Spec)
	return r.Errors
}

func attachmentSource(r *report.Report, path *field.Path, s storagev1.VolumeAttachmentSource) {
	const one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	name, inline := s.PersistentVolumeName, s.InlineVolumeSpec
	switch {
	case name == nil && inline == nil:
		r.Required(path, one)
	case name != nil && inline != nil:
		r.Forbidden(path, one)
	case name != nil && *name == "":
		r.Required(path.Child("persistentVolumeName"), "must specify non empty persistentVolumeName")
	case inline != nil:
		inlineVolume(r, path.Child("inlineVolumeSpec"), inline)
	}
}

// inlineVolume wants a volume of a CSI driver that says nothing of claims.
func inlineVolume(r *report.Report, path *field.Path, v *corev1.PersistentVolumeSpec) {
	const inline = " in the context of inline volumes"
	forbid := func(set bool, child, may string) {
		if set {
			r.Forbidden(path.Child(child), may+inline)
		}
	}
	forbid(v.ClaimRef != nil, "claimRef", "may not be specified")
	forbid(len(v.Capacity) > 0, "capacity", "may not be specified")
	if v.CSI == nil {
		r.Required(path.Child("csi"), "has to be specified"+inline)
	}
	podspec.ValidateAccessModes(r, v.AccessModes, path.Child("accessModes"))
	policy, mode := v.PersistentVolumeReclaimPolicy, v.VolumeMode
	forbid(policy != "" && policy != corev1.PersistentVolumeReclaimRetain, "persistentVolumeReclaimPolicy", "may only be "+string(corev1.PersistentVolumeReclaimRetain))
	forbid(v.NodeAffinity != nil, "nodeAffinity", "may not be specified")
	core.ValidateVolumeSource(r, "", v, path) // a volume of no name
	forbid(v.StorageClassName != "", "storageClassName", "may not be specified")
	forbid(mode != nil && *mode != corev1.PersistentVolumeFilesystem, "volumeMode", "may not specify volumeMode other than "+string(corev1.PersistentVolumeFilesystem))
}

func volumeError(r *report.Report, path *field.Path, e *storagev1.VolumeError) {
	if e == nil {
		return
	}
	if len(e.Message) > maxErrorMessage {
		r.TooLong(path.Child("message"), maxErrorMessage)
	}
	if code := e.ErrorCode; code != nil && *code < 0 {
		r.Invalid(path.Child("errorCode"), *code, validation.InclusiveRangeError(0, math.MaxInt32))
	}
}
