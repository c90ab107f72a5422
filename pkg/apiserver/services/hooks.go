// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
)

// Allocator allocates addresses and node ports when services are written.
type Allocator struct {
	IPs   *IPs
	Ports *Ports
	// Families are the cluster's IP families, the default first.
	Families []corev1.IPFamily
	Log      *slog.Logger
}

// Hooks returns the registry hooks of services.
func (a *Allocator) Hooks() resource.Hooks[*corev1.Service] {
	return resource.Hooks[*corev1.Service]{
		BeforeCreate: func(ctx context.Context, svc *corev1.Service, dryRun bool) (func(bool), error) {
			return a.begin(ctx, svc, nil, dryRun)
		},
		BeforeUpdate: a.begin,
		AfterDelete:  a.releaseAll,
	}
}

// begin allocates what svc needs in addition to old, which is nil on create. The caller calls the
// returned function when the write has ended, with true if it succeeded. The function then frees
// the addresses and ports of old that svc no longer has. With false, it undoes the allocation.
func (a *Allocator) begin(ctx context.Context, svc, old *corev1.Service, dryRun bool) (func(bool), error) {
	if old != nil {
		keepAllocated(svc, old)
	}
	syncClusterIPs(svc, old)
	f := &families{configured: a.Families, svc: svc, old: old}
	if err := f.decide(); err != nil {
		return nil, err
	}
	var c change
	if err := a.allocateIPs(ctx, svc, old, dryRun, &c); err != nil {
		a.undo(ctx, svc, &c, dryRun)
		return nil, err
	}
	if err := a.allocatePorts(ctx, svc, old, dryRun, &c); err != nil {
		a.undo(ctx, svc, &c, dryRun)
		return nil, err
	}
	return func(success bool) {
		// The write has ended, so free addresses and ports even if the client has closed the connection.
		ctx := context.WithoutCancel(ctx)
		switch {
		case dryRun:
		case success:
			a.free(ctx, old, c.oldIPs, c.oldPorts)
		default:
			a.undo(ctx, svc, &c, false)
		}
	}, nil
}

// change has the addresses and ports that one write allocates (new), and those that are freed if
// the write succeeds (old).
type change struct {
	newIPs, oldIPs     []string
	newPorts, oldPorts []int
}

func (a *Allocator) undo(ctx context.Context, svc *corev1.Service, c *change, dryRun bool) {
	if !dryRun {
		a.free(context.WithoutCancel(ctx), svc, c.newIPs, c.newPorts)
	}
}

// free releases addresses and ports. If that fails, Repair releases them
// later.
func (a *Allocator) free(ctx context.Context, svc *corev1.Service, ips []string, ports []int) {
	var errs []error
	for _, ip := range ips {
		errs = append(errs, a.IPs.release(ctx, svc, ip))
	}
	errs = append(errs, a.Ports.release(ctx, ports))
	if err := errors.Join(errs...); err != nil {
		a.Log.Info("Failed to release cluster IPs and node ports that a service no longer uses",
			"namespace", svc.Namespace, "name", svc.Name, "err", err)
	}
}

// releaseAll releases the cluster IPs and node ports of a deleted service.
func (a *Allocator) releaseAll(ctx context.Context, svc *corev1.Service) {
	a.free(context.WithoutCancel(ctx), svc, clusterIPs(svc), portsOf(svc))
}

// clusterIPs returns the addresses that svc holds.
func clusterIPs(svc *corev1.Service) []string {
	if external(svc) {
		return nil
	}
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 && svc.Spec.ClusterIP != "" {
		ips = []string{svc.Spec.ClusterIP}
	}
	var out []string
	for _, ip := range ips {
		if _, ok := familyOf(ip); ok {
			out = append(out, ip)
		}
	}
	return out
}

// allocateIPs allocates the missing addresses of svc. It records new addresses, and those of old
// that svc no longer needs, in c.
func (a *Allocator) allocateIPs(ctx context.Context, svc, old *corev1.Service, dryRun bool, c *change) error {
	var held []string
	if old != nil {
		held = clusterIPs(old)
		if keepsPreference(svc, old) || headless(old) {
			return nil
		}
	}
	if external(svc) {
		c.oldIPs = held
		return nil
	}
	if headless(svc) {
		return nil
	}
	for i, family := range svc.Spec.IPFamilies {
		if i >= len(svc.Spec.ClusterIPs) {
			svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, "")
		}
		want := svc.Spec.ClusterIPs[i]
		if want != "" && slices.Contains(held, want) {
			continue
		}
		if i == 0 && len(held) > 0 {
			continue // the client may not change the first address, so leave it to validation to reject this
		}
		ip, err := a.allocateIP(ctx, svc, family, want, dryRun)
		if err != nil {
			return err
		}
		svc.Spec.ClusterIPs[i] = ip
		c.newIPs = append(c.newIPs, ip)
	}
	if len(svc.Spec.ClusterIPs) > 0 {
		svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
	}
	for i, ip := range held {
		if i > 0 && !slices.Contains(svc.Spec.ClusterIPs, ip) {
			c.oldIPs = append(c.oldIPs, ip)
		}
	}
	return nil
}

func (a *Allocator) allocateIP(ctx context.Context, svc *corev1.Service, family corev1.IPFamily, want string,
	dryRun bool) (string, error) {
	if want == "" {
		ip, err := a.IPs.takeAny(ctx, svc, family, dryRun)
		switch {
		case apierrors.IsInvalid(err): // the IPAddress is invalid because a field of the service is
			return "", invalid(svc, field.Invalid(field.NewPath("spec", "clusterIPs"), svc.Spec.ClusterIPs,
				fmt.Sprintf("failed to allocate IP: %v", err)))
		case err != nil:
			return "", apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP: %w", err))
		}
		return ip.String(), nil
	}
	addr, err := netip.ParseAddr(want)
	if err == nil {
		err = a.IPs.take(ctx, svc, family, addr, dryRun)
	}
	if err != nil {
		return "", invalid(svc, field.Invalid(field.NewPath("spec", "clusterIPs"), svc.Spec.ClusterIPs,
			fmt.Sprintf("failed to allocate IP %v: %v", want, err)))
	}
	return want, nil
}

func invalid(svc *corev1.Service, err *field.Error) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), svc.Name, field.ErrorList{err})
}
