// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

// checkExtendedClaim judges what a pod says of the claim that was made for its
// extended resources.
func checkExtendedClaim(r *report.Report, pod *corev1.Pod, path *field.Path) {
	status := pod.Status.ExtendedResourceClaimStatus
	if status == nil {
		return
	}
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	mappings := path.Child("requestMappings")
	if len(status.RequestMappings) == 0 {
		r.Required(mappings, "at least one request mapping is required")
	}
	seen := sets.New[corev1.ContainerExtendedResourceRequest]()
	for i, m := range status.RequestMappings {
		at := mappings.Index(i)
		c := containerNamed(containers, m.ContainerName)
		if c == nil {
			r.Invalid(at.Child("containerName"), m.ContainerName, "must match the name of an entry in spec.initContainers.name or spec.containers.name")
		} else if _, ok := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]; !ok {
			r.Invalid(at.Child("resourceName"), m.ResourceName, "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests")
		}
		r.Each(path.Child("requestName"), m.RequestName, naming.IsDNS1123Label(m.RequestName))
		if seen.Has(m) {
			r.Duplicate(at.Child("containerName"), m.ContainerName)
			r.Duplicate(at.Child("resourceName"), m.ResourceName)
			r.Duplicate(at.Child("requestName"), m.RequestName)
		}
		seen.Insert(m)
	}
	name := path.Child("resourceClaimName")
	if status.ResourceClaimName == "" {
		r.Required(name, "")
		return
	}
	r.Each(name, status.ResourceClaimName, naming.NameIsDNSSubdomain(status.ResourceClaimName, false))
}

func containerNamed(containers []corev1.Container, name string) *corev1.Container {
	// Of several of one name the last counts.
	for i := len(containers) - 1; i >= 0; i-- {
		if containers[i].Name == name {
			return &containers[i]
		}
	}
	return nil
}

// checkUsers judges the users that containers are said to run as.
func checkUsers(r *report.Report, statuses []corev1.ContainerStatus, path *field.Path, os *corev1.PodOS) {
	for i, s := range statuses {
		if s.User == nil || s.User.Linux == nil {
			continue
		}
		at := path.Index(i).Child("user", "linux")
		if os != nil && os.Name == corev1.Windows {
			r.Forbidden(at, "cannot be set for a windows pod")
			continue
		}
		if os != nil && os.Name != corev1.Linux {
			continue
		}
		user := s.User.Linux
		if user.UID < 0 || user.UID > math.MaxUint32 { // images name users that pods could not ask for
			r.Invalid(at.Child("uid"), user.UID, fmt.Sprintf("must be between 0 and %d, inclusive", uint32(math.MaxUint32)))
		}
		r.Each(at.Child("gid"), user.GID, validation.IsValidGroupID(user.GID))
		for n, gid := range user.SupplementalGroups {
			r.Each(at.Child("supplementalGroups").Index(n), gid, validation.IsValidGroupID(gid))
		}
	}
}

// checkAllocatedHealth judges what is said of the health of the resources that
// containers were given.
func checkAllocatedHealth(r *report.Report, statuses []corev1.ContainerStatus, path *field.Path, containers []corev1.Container) {
	for i, s := range statuses {
		at := path.Index(i).Child("allocatedResourcesStatus")
		for j, allocated := range s.AllocatedResourcesStatus {
			if n := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == s.Name }); n >= 0 {
				checkAllocatedName(r, &containers[n], allocated.Name, at.Index(j).Child("name"))
			}
			checkHealth(r, allocated.Resources, at.Index(j).Child("resources"))
		}
	}
}

func checkAllocatedName(r *report.Report, c *corev1.Container, name corev1.ResourceName, path *field.Path) {
	claim, ok := strings.CutPrefix(string(name), "claim:")
	if !ok {
		if _, requested := c.Resources.Requests[name]; !requested {
			r.Invalid(path, name, "must match one of the container's resource requests")
		}
		return
	}
	known := slices.ContainsFunc(c.Resources.Claims, func(has corev1.ResourceClaim) bool {
		return has.Name == claim && has.Request == "" || has.Request != "" && has.Name+"/"+has.Request == claim
	})
	if !known {
		r.Invalid(path, name, "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty")
	}
}

func checkHealth(r *report.Report, resources []corev1.ResourceHealth, path *field.Path) {
	known := []corev1.ResourceHealthStatus{corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown}
	seen := sets.New[corev1.ResourceID]()
	for i, h := range resources {
		at := path.Index(i)
		if !slices.Contains(known, h.Health) {
			r.Add(field.NotSupported(at.Child("health"), h.Health, known))
		}
		if m := h.Message; m != nil && *m == "" {
			r.Required(at.Child("message"), "must be non-empty if specified")
		} else if m != nil && len(*m) > corev1.ResourceHealthMessageMaxLength {
			r.TooLong(at.Child("message"), corev1.ResourceHealthMessageMaxLength)
		}
		if seen.Has(h.ResourceID) {
			r.Duplicate(at.Child("resourceID"), h.ResourceID)
		}
		seen.Insert(h.ResourceID)
	}
}

// checkUnallocated refuses what containers that have no resources cannot have.
func checkUnallocated(r *report.Report, statuses []corev1.ContainerStatus, path *field.Path) {
	for i, s := range statuses {
		if len(s.AllocatedResourcesStatus) > 0 {
			r.Forbidden(path.Index(i).Child("allocatedResourcesStatus"), "must not be specified in container status")
		}
	}
}
