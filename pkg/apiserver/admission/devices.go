// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes"
)

// DeviceGuard checks writes of resource claims. Requests with admin access, which may get devices
// that other claims use, are allowed only in namespaces that an administrator has labelled. A user
// may change the allocation of a claim only with the right to bind claims, and the status of
// devices only with the right for their drivers.
type DeviceGuard struct {
	Authorizer authorizer.UnconditionalAuthorizer
	Client     kubernetes.Interface
}

// CheckStatus implements resourceclaims.Guard.
func (g *DeviceGuard) CheckStatus(ctx context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
	return slices.Concat(g.granted(ctx, c, old), g.binding(ctx, &c.Status, &old.Status),
		g.drivers(ctx, &c.Status, &old.Status))
}

// CheckRequests implements resourceclaims.Guard. It allows requests with admin access only in
// labelled namespaces.
func (g *DeviceGuard) CheckRequests(ctx context.Context, namespace string,
	requests []resourcev1.DeviceRequest) field.ErrorList {
	for i := range requests {
		if e := requests[i].Exactly; e != nil && e.AdminAccess != nil && *e.AdminAccess {
			return g.admin(ctx, field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess"), namespace)
		}
	}
	return nil
}

// granted checks whether the namespace of a claim may have an allocation with admin access.
func (g *DeviceGuard) granted(ctx context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
	if firstAdmin(&old.Status) >= 0 {
		return nil // admin access was checked when the claim was allocated, and allocations do not change
	}
	i := firstAdmin(&c.Status)
	if i < 0 {
		return nil
	}
	return g.admin(ctx, field.NewPath("status", "allocation", "devices",
		"results").Index(i).Child("adminAccess"), c.Namespace)
}

func firstAdmin(s *resourcev1.ResourceClaimStatus) int {
	if s.Allocation == nil {
		return -1
	}
	return slices.IndexFunc(s.Allocation.Devices.Results,
		func(r resourcev1.DeviceRequestAllocationResult) bool { return r.AdminAccess != nil && *r.AdminAccess })
}

func (g *DeviceGuard) admin(ctx context.Context, path *field.Path, namespace string) field.ErrorList {
	ns, err := g.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return field.ErrorList{
			field.InternalError(path, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err))}
	}
	if ns.Labels[resourcev1.DRAAdminNamespaceLabelKey] != "true" {
		return field.ErrorList{
			field.Forbidden(path,
				fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace",
					resourcev1.DRAAdminNamespaceLabelKey))}
	}
	return nil
}

// binding requires the right to bind claims if the update changes the allocation or the
// reservations.
func (g *DeviceGuard) binding(ctx context.Context, s, old *resourcev1.ResourceClaimStatus) field.ErrorList {
	if equality.Semantic.DeepEqual(s.Allocation, old.Allocation) &&
		equality.Semantic.DeepEqual(s.ReservedFor, old.ReservedFor) {
		return nil
	}
	path := field.NewPath("status", "allocation")
	base, err := genericfilters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return field.ErrorList{field.InternalError(path, fmt.Errorf("cannot build authorizer attributes: %w", err))}
	}
	if err := g.allowed(ctx, partOf{base, base.GetVerb(), resourcev1.SubresourceBinding, "", ""}); err != nil {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf(`changing status.allocation or `+
			`status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %s`, base.GetVerb(), err))}
	}
	return nil
}

// drivers requires rights for the drivers of devices whose status the update changes. A driver that
// runs on the node of the claim needs a lesser right (verb prefix "associated-node:") than a driver
// on another node.
func (g *DeviceGuard) drivers(ctx context.Context, s, old *resourcev1.ResourceClaimStatus) field.ErrorList {
	changed := changedDrivers(s, old)
	if s.Allocation == nil || len(changed) == 0 {
		return nil
	}
	path := field.NewPath("status", "devices")
	base, err := genericfilters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return field.ErrorList{field.InternalError(path, fmt.Errorf("cannot build authorizer attributes: %w", err))}
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + base.GetVerb()}
	if isOn(base.GetUser(), nodeOf(s.Allocation)) {
		verbs = append([]string{resourcev1.VerbPrefixAssociatedNode + base.GetVerb()}, verbs...)
	}
	var errs field.ErrorList
	for _, driver := range sets.List(changed) {
		if err := g.anyAllowed(ctx, base, verbs, driver); err != nil {
			errs = append(errs, field.Forbidden(path,
				fmt.Sprintf(`changing status.devices requires resource="resourceclaims/driver", verb="%s" `+
					`permission: %s`, verbs, err)))
		}
	}
	return errs
}

// anyAllowed returns nil if the user may use any of verbs on the driver's part of a claim.
// Otherwise it returns why the first verb is not allowed.
func (g *DeviceGuard) anyAllowed(ctx context.Context, base authorizer.Attributes, verbs []string, driver string) error {
	var first error
	for _, verb := range verbs {
		err := g.allowed(ctx, partOf{base, verb, resourcev1.SubresourceDriver, base.GetNamespace(), driver})
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func (g *DeviceGuard) allowed(ctx context.Context, attrs authorizer.Attributes) error {
	decision, reason, err := g.Authorizer.Authorize(ctx, attrs)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		if reason == "" {
			reason = err.Error()
		} else {
			reason = fmt.Sprintf("%v: %s", err, reason)
		}
	}
	return errors.New(responsewriters.ForbiddenStatusError(attrs, reason).Error())
}

// partOf has the attributes of a request, with another verb, subresource, namespace and name. The
// authorizer decides by it whether the user may write a part of the claim's status.
type partOf struct {
	authorizer.Attributes
	verb, subresource, namespace, name string
}

// GetVerb returns the verb that is checked.
func (p partOf) GetVerb() string { return p.verb }

// GetSubresource returns the subresource for the part: "binding" or "driver".
func (p partOf) GetSubresource() string { return p.subresource }

// GetNamespace returns the namespace of the claim, or "" for "binding".
func (p partOf) GetNamespace() string { return p.namespace }

// GetName returns the name of the driver, or "" for "binding".
func (p partOf) GetName() string { return p.name }

// changedDrivers returns the drivers of devices whose status the update adds, changes or removes.
func changedDrivers(s, old *resourcev1.ResourceClaimStatus) sets.Set[string] {
	type key struct{ driver, pool, device, share string }
	keyOf := func(d *resourcev1.AllocatedDeviceStatus) key {
		k := key{driver: d.Driver, pool: d.Pool, device: d.Device}
		if d.ShareID != nil {
			k.share = *d.ShareID
		}
		return k
	}
	before := make(map[key]*resourcev1.AllocatedDeviceStatus, len(old.Devices))
	for i := range old.Devices {
		before[keyOf(&old.Devices[i])] = &old.Devices[i]
	}
	changed := sets.New[string]()
	for i := range s.Devices {
		d := &s.Devices[i]
		was, ok := before[keyOf(d)]
		delete(before, keyOf(d))
		if !ok || !equality.Semantic.DeepEqual(was, d) {
			changed.Insert(d.Driver)
		}
	}
	for _, d := range before {
		changed.Insert(d.Driver)
	}
	return changed
}

// nodeOf returns the node of an allocation, or "" if the allocation is not for exactly one node.
func nodeOf(a *resourcev1.AllocationResult) string {
	if a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := &a.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) > 0 || len(term.MatchFields) != 1 {
		return ""
	}
	f := &term.MatchFields[0]
	if f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}

// isOn reports whether the user is a service account whose token is bound to node.
func isOn(u user.Info, node string) bool {
	if node == "" || u == nil {
		return false
	}
	if _, _, err := serviceaccount.SplitUsername(u.GetName()); err != nil {
		return false
	}
	names := u.GetExtra()[serviceaccount.NodeNameKey]
	return len(names) == 1 && names[0] == node
}
