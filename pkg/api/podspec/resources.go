// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	helper "k8s.io/component-helpers/resource"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

const (
	defaultRequestsPrefix = "requests."
	nativePrefix          = corev1.ResourceDefaultNamespacePrefix
)

// IsNative reports whether a resource is one of Kubernetes itself: its name has no domain or
// contains "kubernetes.io/".
func IsNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), nativePrefix)
}

// IsExtended reports whether name is a valid name of an extended resource. Device plugins, for
// example, advertise extended resources.
func IsExtended(name corev1.ResourceName) bool {
	if IsNative(name) || strings.HasPrefix(string(name), defaultRequestsPrefix) {
		return false
	}
	return len(naming.IsQualifiedName(defaultRequestsPrefix+string(name))) == 0
}

// overcommits reports whether the limits for a resource may be higher than its requests.
func overcommits(name corev1.ResourceName) bool { return IsNative(name) && !hugePages(name) }

// IsStandard reports whether a resource name without a domain has a meaning for containers or
// quotas.
func IsStandard(name corev1.ResourceName) bool {
	return slices.Contains([]corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceRequestsCPU,
		corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsCPU,
		corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage, corev1.ResourcePods, corev1.ResourceQuotas,
		corev1.ResourceServices, corev1.ResourceReplicationControllers, corev1.ResourceSecrets, corev1.ResourceConfigMaps,
		corev1.ResourcePersistentVolumeClaims, corev1.ResourceStorage, corev1.ResourceRequestsStorage,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	}, name) || quotaHugePages(name)
}

func quotaHugePages(name corev1.ResourceName) bool {
	return hugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// ValidateResourceName validates the name of a resource, which need not be one that containers can
// request.
func ValidateResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	return resourceName(name, name, path)
}

// resourceName validates the name of a resource. If it is not a qualified name, the error shows the
// value shown.
func resourceName(name corev1.ResourceName, shown any, path *field.Path) field.ErrorList {
	var r report.Report
	r.Each(path, shown, naming.IsQualifiedName(string(name)))
	if len(r.Errors) == 0 && !strings.Contains(string(name), "/") && !IsStandard(name) {
		r.Invalid(path, name, "must be a standard resource type or fully qualified")
	}
	return r.Errors
}

// MetricResourceName validates the name of a container resource in a metric. As in Kubernetes, the
// error shows an invalid name as plain text. The error of ValidateContainerResourceName shows it as
// JSON.
func MetricResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	return containerResourceName(name, string(name), path)
}

func containerResourceName(name corev1.ResourceName, shown any, path *field.Path) field.ErrorList {
	r := report.Report{Errors: resourceName(name, shown, path)}
	counted := name == corev1.ResourceCPU || name == corev1.ResourceMemory ||
		name == corev1.ResourceEphemeralStorage || hugePages(name)
	switch {
	case !strings.Contains(string(name), "/"):
		if !counted {
			r.Invalid(path, name, "must be a standard resource for containers")
		}
	case !IsNative(name) && !IsExtended(name):
		r.Invalid(path, name, "doesn't follow extended resource name standard")
	}
	return r.Errors
}

func podResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	r := report.Report{Errors: ValidateResourceName(name, path)}
	if len(r.Errors) == 0 && !helper.IsSupportedPodLevelResource(name) {
		report.OneOf(&r, path, name, sets.List(helper.SupportedPodLevelResources())...)
	}
	return r.Errors
}

// ValidateQuantity reports a negative quantity, and a fraction of a resource that has only whole
// units.
func ValidateQuantity(name corev1.ResourceName, value resource.Quantity, path *field.Path) field.ErrorList {
	var r report.Report
	r.Quantity(path, value)
	integer := slices.Contains([]corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	}, name) || IsExtended(name)
	if integer && !whole(value) {
		r.Invalid(path, value, "must be an integer")
	}
	return r.Errors
}

// whole reports whether a quantity is a whole number. The quantity can be so large that its
// thousandths do not fit into 64 bits, so MilliValue cannot be used.
func whole(value resource.Quantity) bool {
	value = value.DeepCopy()
	return value.RoundUp(0)
}

// ValidateResources validates the requests, limits and claims of a container. claims are the names
// of the pod's resource claims.
func ValidateResources(req *corev1.ResourceRequirements, claims sets.Set[string], path *field.Path) field.ErrorList {
	return validateRequirements(req, ValidateContainerResourceName, claims, path)
}

type nameFunc func(corev1.ResourceName, *field.Path) field.ErrorList

func validateRequirements(req *corev1.ResourceRequirements, checkName nameFunc, claims sets.Set[string],
	path *field.Path) field.ErrorList {
	var r report.Report
	computes, huge := false, false
	validate := func(name corev1.ResourceName, value resource.Quantity, at *field.Path) {
		r.Add(checkName(name, at)...)
		r.Add(ValidateQuantity(name, value, at)...)
	}
	note := func(name corev1.ResourceName, value resource.Quantity, at *field.Path) {
		if hugePages(name) {
			huge = true
			if !divides(name, value) {
				r.Invalid(at, value.String(), fmt.Sprintf("%s is not positive integer multiple of %s", value.String(), name))
			}
		}
		computes = computes || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	for _, name := range report.Keys(req.Limits) {
		at := path.Child("limits").Key(string(name))
		validate(name, req.Limits[name], at)
		note(name, req.Limits[name], at)
	}
	for _, name := range report.Keys(req.Requests) {
		at, value := path.Child("requests").Key(string(name)), req.Requests[name]
		validate(name, value, at)
		limit, limited := req.Limits[name]
		switch {
		case limited && value.Cmp(limit) != 0 && !overcommits(name):
			r.Invalid(path.Child("requests"), value.String(),
				fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
		case limited && value.Cmp(limit) > 0:
			r.Invalid(path.Child("requests"), value.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
		case !limited && !overcommits(name):
			r.Required(path.Child("limits"), "Limit must be set for non overcommitable resources")
		}
		note(name, value, at)
	}
	if huge && !computes {
		r.Forbidden(path, "HugePages require cpu or memory")
	}
	checkClaimNames(&r, req.Claims, claims, path.Child("claims"))
	return r.Errors
}

// divides reports whether a quantity of huge pages is a multiple of the page size, which is a part
// of the resource's name.
func divides(name corev1.ResourceName, value resource.Quantity) bool {
	page, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	if err != nil || page.Sign() <= 0 {
		return false
	}
	return value.Value()%page.Value() == 0
}

func checkClaimNames(r *report.Report, refs []corev1.ResourceClaim, claims sets.Set[string], path *field.Path) {
	seen := sets.New[string]()
	for i, ref := range refs {
		at := path.Index(i)
		if ref.Name == "" {
			r.Required(at, "")
			continue
		}
		key := ref.Name
		if ref.Request != "" {
			r.Label(at.Child("request"), ref.Request)
			key += "/" + ref.Request
		}
		if seen.Has(ref.Name) || seen.Has(key) {
			r.Duplicate(at, key)
		} else if ref.Request == "" &&
			slices.ContainsFunc(seen.UnsortedList(), func(s string) bool { return strings.HasPrefix(s, key+"/") }) {
			r.Duplicate(at, key)
		}
		seen.Insert(key)
		if !claims.Has(ref.Name) {
			err := field.NotFound(at, ref.Name)
			err.Detail = "must be one of the names in pod.spec.resourceClaims"
			if len(claims) == 0 {
				err.Detail += " which is empty"
			} else {
				err.Detail += ": " + strings.Join(sets.List(claims), ", ")
			}
			r.Add(err)
		}
	}
}

// checkPodResources validates the pod-level resources. They must fit to the resources of the
// containers.
func (c *check) checkPodResources(path *field.Path) {
	own := c.spec.Resources
	if own == nil {
		return
	}
	if c.spec.OS != nil && c.spec.OS.Name == corev1.Windows {
		c.Forbidden(path, "may not be set for a windows pod")
		return
	}
	if own.Claims != nil {
		c.Forbidden(path.Child("claims"), "claims may not be set for Resources at pod-level")
	}
	c.Add(validateRequirements(own, podResourceName, c.claims, path)...)
	pod := &corev1.Pod{Spec: *c.spec}
	asked := helper.AggregateContainerRequests(pod, helper.PodResourcesOptions{})
	for _, name := range report.Keys(asked) {
		sum := asked[name]
		if value, ok := own.Requests[name]; ok && sum.Cmp(value) > 0 {
			c.Invalid(path.Child("requests").Key(string(name)), value.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", sum.String()))
		}
	}
	allowed := helper.AggregateContainerLimits(pod, helper.PodResourcesOptions{})
	for _, name := range report.Keys(allowed) {
		sum := allowed[name]
		if value, ok := own.Limits[name]; ok && hugePages(name) && sum.Cmp(value) > 0 {
			c.Invalid(path.Child("limits").Key(string(name)), value.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container limits of %s", sum.String()))
		}
	}
	for i := range c.spec.Containers {
		limits := c.spec.Containers[i].Resources.Limits
		for _, name := range report.Keys(limits) {
			limit := limits[name]
			if value, ok := own.Limits[name]; ok && limit.Cmp(value) > 0 {
				c.Invalid(path.Child("containers").Index(i).Key(string(name)).Child("limits"), limit.String(),
					fmt.Sprintf("must be less than or equal to pod limits of %s", value.String()))
			}
		}
	}
}

// Unqualified reports whether the name of a resource has no domain.
func Unqualified(name corev1.ResourceName) bool { return !strings.Contains(string(name), "/") }

// CountsInQuota reports whether quotas support a resource whose name has no domain.
func CountsInQuota(name corev1.ResourceName) bool {
	return IsStandard(name) && name != corev1.ResourceStorage
}

// ValidateContainerResourceName validates the name of a resource that a container requests.
func ValidateContainerResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	return containerResourceName(name, name, path)
}

// Overcommits reports whether the limits for a resource may be higher than its requests.
func Overcommits(name corev1.ResourceName) bool { return overcommits(name) }

// QOSClass returns the QoS class of a pod: Guaranteed if every container has CPU and memory limits
// and its requests equal its limits, BestEffort if no container has requests or limits for CPU or
// memory, and otherwise Burstable. Pod-level resources, if there are any, replace those of the
// containers. Ephemeral containers do not count.
func QOSClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	allLimited := true
	count := func(r *corev1.ResourceRequirements) {
		addComputing(requests, r.Requests)
		if addComputing(limits, r.Limits) < 2 {
			allLimited = false
		}
	}
	// Pod-level resources without requests and limits have no effect.
	if own := spec.Resources; own != nil && len(own.Requests)+len(own.Limits) > 0 {
		addComputing(requests, own.Requests)
		if n := addComputing(limits, own.Limits); len(own.Limits) > 0 && n < 2 {
			allLimited = false
		}
	} else {
		for place, c := range Containers(spec, nil) {
			if place.Role != Ephemeral {
				count(&c.Resources)
			}
		}
	}
	switch {
	case len(requests) == 0 && len(limits) == 0:
		return corev1.PodQOSBestEffort
	case allLimited && equalLists(requests, limits):
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}

// addComputing adds the positive quantities of CPU and memory in list to those in sum. It returns
// their number, 0 to 2.
func addComputing(sum, list corev1.ResourceList) int {
	found := 0
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		quantity, ok := list[name]
		if !ok || quantity.Sign() <= 0 {
			continue
		}
		found++
		total := sum[name].DeepCopy()
		total.Add(quantity)
		sum[name] = total
	}
	return found
}

func equalLists(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, quantity := range a {
		if other, ok := b[name]; !ok || quantity.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
