// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

// requestNames maps the name of each request of a claim to the names of its subrequests.
type requestNames map[string]sets.Set[string]

func namesOf(d *resourcev1.DeviceClaim) requestNames {
	names := requestNames{}
	for i := range d.Requests {
		subs := sets.New[string]()
		for j := range d.Requests[i].FirstAvailable {
			subs.Insert(d.Requests[i].FirstAvailable[j].Name)
		}
		names[d.Requests[i].Name] = subs
	}
	return names
}

// has reports whether ref, such as "request" or "request/subrequest", names a request or a
// subrequest of the claim.
func (n requestNames) has(ref string) bool {
	request, sub, ok := strings.Cut(ref, "/")
	subs, found := n[request]
	return found && (!ok || subs.Has(sub))
}

func (n requestNames) check(r *report.Report, path *field.Path, ref string) {
	const detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	if strings.Count(ref, "/") > 1 {
		r.Invalid(path, ref, detail)
		return
	}
	for part := range strings.SplitSeq(ref, "/") {
		r.Label(path, part)
	}
	if !n.has(ref) {
		r.Invalid(path, ref, detail)
	}
}

func (n requestNames) checkAll(r *report.Report, path *field.Path, refs []string) {
	checkSet(r, path, refs, resourcev1.DeviceRequestsMaxSize, same, func(at *field.Path, ref *string) {
		n.check(r, at, *ref)
	})
}

func validateClaim(_ context.Context, c *resourcev1.ResourceClaim) field.ErrorList {
	var r report.Report
	checkClaim(&r, field.NewPath("spec", "devices"), &c.Spec.Devices)
	return r.Errors
}

func validateClaimUpdate(_ context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
	var r report.Report
	if !equality.Semantic.DeepEqual(c.Spec, old.Spec) {
		r.Invalid(field.NewPath("spec"), c.Spec, apivalidation.FieldImmutableErrorMsg)
	}
	return r.Errors
}

func checkClaim(r *report.Report, path *field.Path, d *resourcev1.DeviceClaim) {
	names := namesOf(d)
	checkSet(r, path.Child("requests"), d.Requests, resourcev1.DeviceRequestsMaxSize,
		func(q *resourcev1.DeviceRequest) string { return q.Name },
		func(at *field.Path, q *resourcev1.DeviceRequest) { checkRequest(r, at, q) })
	checkSlice(r, path.Child("constraints"), d.Constraints, resourcev1.DeviceConstraintsMaxSize,
		func(at *field.Path, c *resourcev1.DeviceConstraint) {
			names.checkAll(r, at.Child("requests"), c.Requests)
			switch {
			case c.MatchAttribute != nil:
				checkFullName(r, at.Child("matchAttribute"), *c.MatchAttribute)
			case c.DistinctAttribute != nil:
				checkFullName(r, at.Child("distinctAttribute"), *c.DistinctAttribute)
			default:
				r.Required(at, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`)
			}
		})
	checkSlice(r, path.Child("config"), d.Config, resourcev1.DeviceConfigMaxSize,
		func(at *field.Path, c *resourcev1.DeviceClaimConfiguration) {
			names.checkAll(r, at.Child("requests"), c.Requests)
			checkConfig(r, at, &c.DeviceConfiguration, false)
		})
}

func checkRequest(r *report.Report, path *field.Path, q *resourcev1.DeviceRequest) {
	r.Label(path.Child("name"), q.Name)
	switch {
	case q.Exactly == nil && len(q.FirstAvailable) == 0:
		r.Required(path, "exactly one of `exactly` or `firstAvailable` is required")
	case q.Exactly != nil && len(q.FirstAvailable) > 0:
		r.Invalid(path, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set")
	case q.Exactly != nil:
		e := q.Exactly
		checkDevices(r, path.Child("exactly"), e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Tolerations)
	default:
		checkSet(r, path.Child("firstAvailable"), q.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize,
			func(s *resourcev1.DeviceSubRequest) string { return s.Name },
			func(at *field.Path, s *resourcev1.DeviceSubRequest) {
				r.Label(at.Child("name"), s.Name)
				checkDevices(r, at, s.DeviceClassName, s.Selectors, s.AllocationMode, s.Count, s.Tolerations)
			})
	}
}

// checkDevices validates the fields that requests and subrequests have in common: class, selectors,
// allocation mode, count and tolerations.
func checkDevices(r *report.Report, path *field.Path, class string, selectors []resourcev1.DeviceSelector,
	mode resourcev1.DeviceAllocationMode, count int64, tolerations []resourcev1.DeviceToleration) {
	if class == "" {
		r.Required(path.Child("deviceClassName"), "")
	} else {
		r.Subdomain(path.Child("deviceClassName"), class)
	}
	checkSelectors(r, path.Child("selectors"), selectors, false)
	switch mode {
	case resourcev1.DeviceAllocationModeAll:
		if count != 0 {
			r.Invalid(path.Child("count"), count, fmt.Sprintf("must not be specified when allocationMode is '%s'", mode))
		}
	case resourcev1.DeviceAllocationModeExactCount:
		if count <= 0 {
			r.Invalid(path.Child("count"), count, "must be greater than zero")
		}
	default:
		report.OneOf(r, path.Child("allocationMode"), mode, resourcev1.DeviceAllocationModeAll,
			resourcev1.DeviceAllocationModeExactCount)
	}
	for i := range tolerations {
		checkToleration(r, path.Child("tolerations").Index(i), &tolerations[i])
	}
}

func checkConfig(r *report.Report, path *field.Path, c *resourcev1.DeviceConfiguration, stored bool) {
	at := path.Child("opaque")
	if c.Opaque == nil {
		r.Required(at, "")
		return
	}
	checkDriver(r, at.Child("driver"), c.Opaque.Driver)
	checkRaw(r, at.Child("parameters"), c.Opaque.Parameters, resourcev1.OpaqueParametersMaxLength, stored)
}

// deviceID identifies an allocated device. Error messages show all its fields.
type deviceID struct{ Driver, Pool, Device, ShareID string }

func validateClaimStatus(_ context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
	var r report.Report
	path, s := field.NewPath("status"), &c.Status
	checkSet(&r, path.Child("reservedFor"), s.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize,
		func(u *resourcev1.ResourceClaimConsumerReference) string { return string(u.UID) },
		func(at *field.Path, u *resourcev1.ResourceClaimConsumerReference) {
			for _, part := range [][2]string{{"resource", u.Resource}, {"name", u.Name}, {"uid", string(u.UID)}} {
				if part[1] == "" {
					r.Required(at.Child(part[0]), "")
				}
			}
		})
	allocated := allocatedDevices(s)
	checkSet(&r, path.Child("devices"), s.Devices, -1, statusID,
		func(at *field.Path, d *resourcev1.AllocatedDeviceStatus) {
			checkDeviceStatus(&r, at, d, allocated)
		})
	checkReserved(&r, path.Child("reservedFor"), c, &old.Status)
	switch at := path.Child("allocation"); {
	case s.Allocation == nil:
	case old.Status.Allocation == nil:
		checkAllocation(&r, at, s.Allocation, namesOf(&c.Spec.Devices))
	case !equality.Semantic.DeepEqual(s.Allocation, old.Status.Allocation):
		r.Invalid(at, s.Allocation, apivalidation.FieldImmutableErrorMsg)
	}
	return r.Errors
}

func checkReserved(r *report.Report, path *field.Path, c *resourcev1.ResourceClaim,
	old *resourcev1.ResourceClaimStatus) {
	switch {
	case len(c.Status.ReservedFor) == 0:
	case c.Status.Allocation == nil:
		r.Forbidden(path, "may not be specified when `allocated` is not set")
	case c.DeletionTimestamp != nil &&
		sets.New(c.Status.ReservedFor...).Difference(sets.New(old.ReservedFor...)).Len() > 0:
		r.Forbidden(path, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")
	}
}

// allocatedDevices returns the IDs of the devices that are allocated to a claim.
func allocatedDevices(s *resourcev1.ResourceClaimStatus) sets.Set[deviceID] {
	allocated := sets.New[deviceID]()
	if s.Allocation == nil {
		return allocated
	}
	for _, d := range s.Allocation.Devices.Results {
		id := deviceID{Driver: d.Driver, Pool: d.Pool, Device: d.Device}
		if d.ShareID != nil {
			id.ShareID = string(*d.ShareID)
		}
		allocated.Insert(id)
	}
	return allocated
}

func statusID(d *resourcev1.AllocatedDeviceStatus) deviceID {
	id := deviceID{Driver: d.Driver, Pool: d.Pool, Device: d.Device}
	if d.ShareID != nil {
		id.ShareID = *d.ShareID
	}
	return id
}

func checkDeviceStatus(r *report.Report, path *field.Path, d *resourcev1.AllocatedDeviceStatus,
	allocated sets.Set[deviceID]) {
	checkDriver(r, path.Child("driver"), d.Driver)
	checkPoolName(r, path.Child("pool"), d.Pool)
	r.Label(path.Child("device"), d.Device)
	if d.ShareID != nil {
		checkUID(r, path.Child("shareID"), *d.ShareID)
	}
	if id := statusID(d); !allocated.Has(id) {
		r.Invalid(path, id, "must be an allocated device in the claim")
	}
	if n := len(d.Conditions); n > resourcev1.AllocatedDeviceStatusMaxConditions {
		r.TooMany(path.Child("conditions"), n, resourcev1.AllocatedDeviceStatusMaxConditions)
	}
	r.Add(metav1validation.ValidateConditions(d.Conditions, path.Child("conditions"))...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		checkRaw(r, path.Child("data"), *d.Data, resourcev1.AllocatedDeviceStatusDataMaxLength, false)
	}
	checkNetwork(r, path.Child("networkData"), d.NetworkData)
}

// checkAllocation validates an allocation that the update adds. names are the requests of the
// claim.
func checkAllocation(r *report.Report, path *field.Path, a *resourcev1.AllocationResult, names requestNames) {
	devices := path.Child("devices")
	checkSlice(r, devices.Child("results"), a.Devices.Results, resourcev1.AllocationResultsMaxSize,
		func(at *field.Path, d *resourcev1.DeviceRequestAllocationResult) {
			names.check(r, at.Child("request"), d.Request)
			checkDriver(r, at.Child("driver"), d.Driver)
			checkPoolName(r, at.Child("pool"), d.Pool)
			r.Label(at.Child("device"), d.Device)
			checkBinding(r, at, d.BindingConditions, d.BindingFailureConditions)
			for i := range d.Tolerations {
				checkToleration(r, at.Child("tolerations").Index(i), &d.Tolerations[i])
			}
			if d.ShareID != nil {
				checkUID(r, at.Child("shareID"), string(*d.ShareID))
			}
		})
	// The list contains the configurations of the class and those of the claim, so it can be twice
	// as long as each.
	checkSlice(r, devices.Child("config"), a.Devices.Config, 2*resourcev1.DeviceConfigMaxSize,
		func(at *field.Path, c *resourcev1.DeviceAllocationConfiguration) {
			report.OneOfRequired(r, at.Child("source"), c.Source, resourcev1.AllocationConfigSourceClaim,
				resourcev1.AllocationConfigSourceClass)
			names.checkAll(r, at.Child("requests"), c.Requests)
			checkConfig(r, at, &c.DeviceConfiguration, false)
		})
	if a.NodeSelector != nil {
		r.Add(podspec.ValidateNodeSelector(a.NodeSelector, path.Child("nodeSelector"))...)
	}
}

func checkNetwork(r *report.Report, path *field.Path, n *resourcev1.NetworkDeviceData) {
	if n == nil {
		return
	}
	if limit := resourcev1.NetworkDeviceDataInterfaceNameMaxLength; len(n.InterfaceName) > limit {
		r.TooLong(path.Child("interfaceName"), limit)
	}
	if limit := resourcev1.NetworkDeviceDataHardwareAddressMaxLength; len(n.HardwareAddress) > limit {
		r.TooLong(path.Child("hardwareAddress"), limit)
	}
	checkSet(r, path.Child("ips"), n.IPs, resourcev1.NetworkDeviceDataMaxIPs, same, func(at *field.Path, ip *string) {
		r.Add(validation.IsValidInterfaceAddress(at, *ip)...)
	})
}

// isExtendedResource reports whether name is a valid name of an extended resource: it is outside of
// Kubernetes' own name space, and quotas can limit the resource.
func isExtendedResource(name string) bool {
	native := !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix)
	return !native && !strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}
