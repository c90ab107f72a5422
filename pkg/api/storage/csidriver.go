// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// csiDriverRow returns the row of the kind table for the resource csidrivers.
func csiDriverRow() *resource.Row {
	return resource.Of[storagev1.CSIDriverList](resource.Kind[*storagev1.CSIDriver]{
		Group: "storage.k8s.io", Version: "v1", Resource: "csidrivers", Kind: "CSIDriver",

		Default:         defaultCSIDriver,
		DefaultsChanged: true, // preventPodSchedulingIfMissing has a default since 1.37

		PrepareUpdate:  prepareCSIDriverUpdate,
		ReturnDeleted:  true,
		Validate:       validateCSIDriver,
		ValidateUpdate: validateCSIDriverUpdate,
		Warnings:       warnCSIDriver,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "AttachRequired", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["attachRequired"]},
			{Name: "PodInfoOnMount", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["podInfoOnMount"]},
			{Name: "StorageCapacity", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["storageCapacity"]},
			{Name: "TokenRequests", Type: "string", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["tokenRequests"]},
			{Name: "RequiresRepublish", Type: "boolean",
				Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["requiresRepublish"]},
			{Name: "Modes", Type: "string", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["volumeLifecycleModes"]},
			column.Age(),
		},
		Cells: csiDriverCells,
	})
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	spec := &d.Spec
	unset.Point(&spec.AttachRequired, true)
	unset.Point(&spec.PodInfoOnMount, false)
	unset.Point(&spec.StorageCapacity, false)
	unset.Point(&spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	if len(spec.VolumeLifecycleModes) == 0 {
		spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	unset.Point(&spec.RequiresRepublish, false)
	unset.Point(&spec.SELinuxMount, false)
	unset.Point(&spec.PreventPodSchedulingIfMissing, false)
}

// prepareCSIDriverUpdate increments the generation. As in Kubernetes, a new driver has no generation.
func prepareCSIDriverUpdate(_ context.Context, d, old *storagev1.CSIDriver) {
	strategy.Count(d, old, equality.Semantic.DeepEqual(d.Spec, old.Spec))
}

const (
	maxDriverName         = 63
	maxNodeID             = 256
	maxAttachmentMetadata = 256 << 10
	maxErrorMessage       = 1024
	minTokenSeconds       = 600
	minUpdatePeriod       = 10
)

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
		report.OneOf(r, path.Child("volumeLifecycleModes"), mode, storagev1.VolumeLifecyclePersistent,
			storagev1.VolumeLifecycleEphemeral)
	}
	required(r, path.Child("seLinuxMount"), spec.SELinuxMount)
	if period := spec.NodeAllocatableUpdatePeriodSeconds; period != nil && *period < minUpdatePeriod {
		r.Invalid(path.Child("nodeAllocatableUpdatePeriodSeconds"), *period, "must be greater than or equal to 10 seconds")
	}
	if in := spec.ServiceAccountTokenInSecrets; in != nil && len(spec.TokenRequests) == 0 {
		r.Invalid(path.Child("serviceAccountTokenInSecrets"), in,
			"serviceAccountTokenInSecrets is set but no tokenRequests are specified")
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

// warnCSIDriver warns if service account tokens are passed to the driver in volume attributes,
// because drivers may log these attributes. On update, it warns only if the token requests have
// changed.
func warnCSIDriver(_ context.Context, d, old *storagev1.CSIDriver) []string {
	if len(d.Spec.TokenRequests) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil {
		return nil
	}
	if old != nil && equality.Semantic.DeepEqual(old.Spec.TokenRequests, d.Spec.TokenRequests) {
		return nil
	}
	return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to " +
		"true to prevent possible logging of tokens in volume attributes"}
}

func csiDriverCells(d *storagev1.CSIDriver, env resource.CellEnv) []any {
	spec := &d.Spec
	modes := make([]string, len(spec.VolumeLifecycleModes))
	for i, m := range spec.VolumeLifecycleModes {
		modes[i] = string(m)
	}
	tokens := column.Unset
	if spec.TokenRequests != nil {
		audiences := make([]string, len(spec.TokenRequests))
		for i, t := range spec.TokenRequests {
			audiences[i] = t.Audience
		}
		tokens = strings.Join(audiences, ",")
	}
	isTrue := func(b *bool) bool { return b != nil && *b }
	return []any{
		d.Name, spec.AttachRequired == nil || *spec.AttachRequired, isTrue(spec.PodInfoOnMount), isTrue(spec.StorageCapacity),
		tokens, isTrue(spec.RequiresRepublish), column.OrNone(strings.Join(modes, ",")), env.Age(d.CreationTimestamp),
	}
}
