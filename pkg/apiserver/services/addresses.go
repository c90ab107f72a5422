// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// leakGrace is the minimum age at which an IPAddress is deleted whose service does not exist or
	// has the type ExternalName. Before that age, a request may be about to create the service, or to
	// update it with the address.
	leakGrace = time.Minute
	// writeGrace is the minimum age at which an IPAddress is deleted that is newer than its service,
	// but is not an address of the service. Before that age, an update may be about to add the
	// address to the service.
	writeGrace = 5 * time.Second
)

// problem is a difference between a service and an IPAddress. Repair reports it as an event with the
// same reason and message as in Kubernetes.
type problem struct {
	ip                   netip.Addr
	address              *networkingv1.IPAddress // nil if there is none
	reason, action, note string                  // of the event; there is none if reason is empty
	remedy               remedy
}

// remedy is how a problem is solved: by creating the IPAddress, by creating it again, or by deleting it.
// If it is empty, only an administrator can solve the problem.
type remedy string

const (
	create  remedy = "create"
	replace remedy = "replace"
	remove  remedy = "remove"
)

// reader reads objects, either from the informers' caches or from the API server. Its functions return
// nil if an object does not exist.
type reader struct {
	service func(namespace, name string) (*corev1.Service, error)
	address func(name string) (*networkingv1.IPAddress, error)
}

func (r *Repair) cached() reader {
	return reader{
		func(namespace, name string) (*corev1.Service, error) {
			return found(r.services.Services(namespace).Get(name))
		},
		func(name string) (*networkingv1.IPAddress, error) { return found(r.ips.Get(name)) },
	}
}

func (r *Repair) current(ctx context.Context) reader {
	return reader{
		func(namespace, name string) (*corev1.Service, error) {
			return found(r.Client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{}))
		},
		func(name string) (*networkingv1.IPAddress, error) {
			return found(r.Client.NetworkingV1().IPAddresses().Get(ctx, name, metav1.GetOptions{}))
		},
	}
}

// found returns the result of a read, which is nil if the object does not exist.
func found[T any](o *T, err error) (*T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err // not o, because client-go returns an empty object with an error
	}
	return o, nil
}

// noteService calls note if there may be a problem with an address of a service.
func (r *Repair) noteService(svc *corev1.Service, note func(types.NamespacedName)) {
	if problems, err := r.checkService(r.cached(), svc); len(problems) > 0 || err != nil {
		note(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name})
	}
}

// noteAddress calls note if there may be a problem with an IPAddress.
func (r *Repair) noteAddress(o *networkingv1.IPAddress, note func(types.NamespacedName)) {
	if p, again, err := r.checkAddress(r.cached(), o); p != nil || again > 0 || err != nil {
		note(types.NamespacedName{Name: o.Name})
	}
}

// sync checks a service or an IPAddress, and solves its problems.
func (r *Repair) sync(ctx context.Context, key types.NamespacedName) error {
	if key.Namespace == "" {
		return r.syncAddress(ctx, key)
	}
	return r.syncService(ctx, key)
}

func (r *Repair) syncService(ctx context.Context, key types.NamespacedName) error {
	var (
		svc      *corev1.Service
		problems []problem
		err      error
	)
	for _, from := range []reader{r.cached(), r.current(ctx)} {
		if svc, err = from.service(key.Namespace, key.Name); svc == nil {
			return err
		}
		if problems, err = r.checkService(from, svc); len(problems) == 0 {
			return err
		}
	}
	errs := []error{err}
	for _, p := range problems {
		if err := r.repairService(ctx, svc, p); err != nil {
			errs = append(errs, fmt.Errorf("address %s: %w", p.ip, err))
		}
	}
	return errors.Join(errs...)
}

// checkService returns the problems of the addresses of a service.
func (r *Repair) checkService(from reader, svc *corev1.Service) (problems []problem, err error) {
	for _, ip := range addresses(svc) {
		p, failed := r.checkIP(from, svc, ip)
		if p != nil {
			problems = append(problems, *p)
		}
		err = errors.Join(err, failed)
	}
	return problems, err
}

// checkIP returns the problem of one address of a service, or nil if its IPAddress is as it should be.
func (r *Repair) checkIP(from reader, svc *corev1.Service, ip netip.Addr) (*problem, error) {
	family, _ := familyOf(ip.String())
	o, err := from.address(ip.String())
	if err != nil {
		return nil, err
	}
	found := func(how remedy, reason, note string, args ...any) *problem {
		return &problem{ip, o, reason, "ClusterIPAllocation", fmt.Sprintf(note, args...), how}
	}
	switch {
	case !r.inRange(ip):
		return found("", "ClusterIPOutOfRange", "Cluster IP [%v]: %s is not within any configured Service CIDR; "+
			"please recreate service", family, ip), nil
	case o == nil:
		return found(create, "ClusterIPNotAllocated", "Cluster IP [%v]: %s is not allocated; repairing", family, ip), nil
	case parentIs(o, svc.Namespace, svc.Name) && labeled(o, family):
		return nil, nil
	case parentIs(o, svc.Namespace, svc.Name):
		return found(replace, "", "the labels of IPAddress %s are wrong; repairing", ip), nil
	}
	var other *corev1.Service
	if ofService(o) {
		other, err = from.service(o.Spec.ParentRef.Namespace, o.Spec.ParentRef.Name)
	}
	switch {
	case err != nil:
		return nil, err
	case other != nil && has(other, ip.String()):
		return found("", "ClusterIPAlreadyAllocated", "Cluster IP [%v]:%s was assigned to multiple services; "+
			"please recreate service", family, ip), nil
	case other != nil:
		return nil, nil // the check of the IPAddress deletes it
	}
	return found(replace, "ClusterIPNotAllocated", "the ClusterIP [%v]: %s for Service %s/%s has a wrong reference; "+
		"repairing", family, ip, svc.Namespace, svc.Name), nil
}

func (r *Repair) repairService(ctx context.Context, svc *corev1.Service, p problem) error {
	if p.remedy == replace {
		if err := r.delete(ctx, p.address); err != nil {
			return err
		}
	}
	if p.remedy != "" {
		family, _ := familyOf(p.ip.String())
		err := r.a.IPs.create(ctx, svc, family, p.ip)
		if errors.Is(err, errAllocated) {
			return nil // another server has repaired it in the meantime
		}
		if err != nil {
			return err
		}
	}
	r.report(svc, p)
	return nil
}

func (r *Repair) syncAddress(ctx context.Context, key types.NamespacedName) error {
	var (
		o   *networkingv1.IPAddress
		p   *problem
		err error
	)
	for _, from := range []reader{r.cached(), r.current(ctx)} {
		if o, err = from.address(key.Name); o == nil {
			return err
		}
		var again time.Duration
		if p, again, err = r.checkAddress(from, o); p == nil {
			if again > 0 {
				r.Clock.AfterFunc(again, func() { r.note(key) })
			}
			return err
		}
	}
	if err := r.delete(ctx, o); err != nil {
		return fmt.Errorf("address %s: %w", key.Name, err)
	}
	r.report(o, *p)
	return nil
}

// checkAddress returns the problem of an IPAddress that is not an address of the service to which it
// refers. It returns nil if there is no problem, or if this cannot be decided yet. If again is not 0, the
// caller must repeat the check after that time.
func (r *Repair) checkAddress(from reader, o *networkingv1.IPAddress) (p *problem, again time.Duration, err error) {
	if o.Labels[managerLabel] != manager {
		return nil, 0, nil
	}
	found := func(reason, note string, args ...any) *problem {
		return &problem{address: o, reason: reason, action: "IPAddressAllocation", note: fmt.Sprintf(note, args...),
			remedy: remove}
	}
	ref := o.Spec.ParentRef
	if !ofService(o) {
		return found("IPAddressNotAllocated", "IPAddress %s appears to have been modified, not referencing a Service %v: "+
			"cleaning up", o.Name, ref), 0, nil
	}
	svc, err := from.service(ref.Namespace, ref.Name)
	if err != nil {
		return nil, 0, err
	}
	age := r.Clock.Since(o.CreationTimestamp.Time)
	switch {
	case svc == nil && age < leakGrace:
		return nil, leakGrace - age, nil
	case svc == nil:
		return found("IPAddressNotAllocated", "IPAddress: %s for Service %s/%s appears to have leaked: cleaning up", o.Name,
			ref.Namespace, ref.Name), 0, nil
	case has(svc, o.Name):
		return nil, 0, nil
	case external(svc) && age < leakGrace: // an update may be about to add the address to the service
		return nil, leakGrace - age, nil
	case o.CreationTimestamp.After(svc.CreationTimestamp.Time) && age < writeGrace:
		return nil, writeGrace, nil
	}
	return found("IPAddressWrongReference", "IPAddress: %s for Service %s/%s has a wrong reference; cleaning up", o.Name,
		svc.Namespace, svc.Name), 0, nil
}

// delete deletes an IPAddress. It returns an error if the IPAddress was replaced in the meantime.
func (r *Repair) delete(ctx context.Context, o *networkingv1.IPAddress) error {
	err := r.Client.NetworkingV1().IPAddresses().Delete(ctx, o.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// report logs a problem of a service or IPAddress and records an event.
func (r *Repair) report(about runtime.Object, p problem) {
	r.a.Log.Info("Service and IPAddress differ", "reason", p.reason, "repair", p.remedy, "message", p.note)
	if p.reason != "" {
		r.Events.Eventf(about, nil, corev1.EventTypeWarning, p.reason, p.action, "%s", p.note)
	}
}

// inRange reports whether ip is in a ServiceCIDR, even if that is not ready or is being deleted.
func (r *Repair) inRange(ip netip.Addr) bool {
	all, err := r.ranges.List(labels.Everything())
	if err != nil {
		return false // cannot happen: List of a cache returns no error
	}
	for _, o := range all {
		for _, s := range o.Spec.CIDRs {
			if p, err := netip.ParsePrefix(s); err == nil && usable(p, ip) {
				return true
			}
		}
	}
	return false
}

// addresses returns the addresses that svc holds.
func addresses(svc *corev1.Service) (out []netip.Addr) {
	for _, s := range clusterIPs(svc) {
		if ip, err := netip.ParseAddr(s); err == nil {
			out = append(out, ip)
		}
	}
	return out
}

// has reports whether svc holds the address of the IPAddress with the given name.
func has(svc *corev1.Service, name string) bool {
	return slices.ContainsFunc(addresses(svc), func(ip netip.Addr) bool { return ip.String() == name })
}

// ofService reports whether an IPAddress refers to a service. The service may not exist.
func ofService(o *networkingv1.IPAddress) bool {
	ref := o.Spec.ParentRef
	return ref != nil && ref.Group == "" && ref.Resource == "services"
}

// parentIs reports whether an IPAddress refers to the service with the given namespace and name.
func parentIs(o *networkingv1.IPAddress, namespace, name string) bool {
	return ofService(o) && o.Spec.ParentRef.Namespace == namespace && o.Spec.ParentRef.Name == name
}

// labeled reports whether an IPAddress has the labels that the allocator sets.
func labeled(o *networkingv1.IPAddress, family corev1.IPFamily) bool {
	return o.Labels[familyLabel] == string(family) && o.Labels[managerLabel] == manager
}
