// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

// checkAllocation judges a new allocation.
func checkAllocation(r *report.Report, path *field.Path, a *resourcev1.AllocationResult, names requestNames) {
	devices := path.Child("devices")
	checkSlice(r, devices.Child("results"), a.Devices.Results, resourcev1.AllocationResultsMaxSize, func(at *field.Path, d *resourcev1.DeviceRequestAllocationResult) {
		names.check(r, at.Child("request"), d.Request)
		checkDriver(r, at.Child("driver"), d.Driver)
		checkPoolName(r, at.Child("pool"), d.Pool)
		r.Label(at.Child("device"), d.Device)
		checkBinding(r, at, d.BindingConditions, d.BindingFailureConditions)
		if d.ShareID != nil {
			checkUID(r, at.Child("shareID"), string(*d.ShareID))
		}
	})
	// Of the class and of the claim.
	checkSlice(r, devices.Child("config"), a.Devices.Config, 2*resourcev1.DeviceConfigMaxSize, func(at *field.Path, c *resourcev1.DeviceAllocationConfiguration) {
		report.OneOfRequired(r, at.Child("source"), c.Source, resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass)
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

// isExtendedResource reports whether name is of a resource that is not
// Kubernetes' own, and for which there can be quota.
func isExtendedResource(name string) bool {
	native := !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix)
	return !native && !strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}
