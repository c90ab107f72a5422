// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// hasPorts reports whether services of svc's type may have node ports.
func hasPorts(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeNodePort || svc.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// firstDryRunPort is the first port that a dry run returns, as in Kubernetes. It is above the
// default range.
const firstDryRunPort = 32769

// wantsPorts reports whether node ports that the client left out are to be allocated.
func wantsPorts(svc *corev1.Service) bool {
	switch svc.Spec.Type {
	case corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeLoadBalancer:
		return svc.Spec.AllocateLoadBalancerNodePorts == nil || *svc.Spec.AllocateLoadBalancerNodePorts
	}
	return false
}

// wantsHealthPort reports whether svc needs a health check node port.
func wantsHealthPort(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// portsOf returns the node ports of svc, including its health check node port.
func portsOf(svc *corev1.Service) []int {
	var out []int
	if hasPorts(svc) {
		for _, p := range svc.Spec.Ports {
			if n := int(p.NodePort); n != 0 && !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	if n := int(svc.Spec.HealthCheckNodePort); n != 0 {
		out = append(out, n)
	}
	return out
}

// keepAllocated copies cluster IPs and node ports that the client left out of an update from the
// stored service.
func keepAllocated(svc, old *corev1.Service) {
	if !external(svc) && !external(old) {
		if svc.Spec.ClusterIP == "" {
			svc.Spec.ClusterIP = old.Spec.ClusterIP
		}
		if len(svc.Spec.ClusterIPs) == 0 && len(old.Spec.ClusterIPs) > 0 {
			svc.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	}
	if wantsPorts(svc) && wantsPorts(old) {
		keepPorts(svc, old)
	}
	if wantsHealthPort(svc) && wantsHealthPort(old) && svc.Spec.HealthCheckNodePort == 0 {
		svc.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

func keepPorts(svc, old *corev1.Service) {
	mine := map[int32]bool{}
	for _, p := range svc.Spec.Ports {
		mine[p.NodePort] = p.NodePort != 0
	}
	byName := map[string]int32{}
	for _, p := range old.Spec.Ports {
		byName[p.Name] = p.NodePort
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if was := byName[p.Name]; p.NodePort == 0 && !mine[was] {
			p.NodePort = was
		}
	}
}

// allocatePorts allocates the missing node ports of svc in one transaction. It records new ports,
// and those of old that svc no longer needs, in c.
func (a *Allocator) allocatePorts(ctx context.Context, svc, old *corev1.Service, dryRun bool, c *change) error {
	var held []int
	if old != nil {
		held = portsOf(old)
	}
	if needsNew(svc, old, held) || old != nil && repeatsPort(svc) {
		var p *portPlan
		err := a.Ports.change(ctx, dryRun, func(b *bitmap) error {
			p = &portPlan{svc: svc, held: held, ports: a.Ports, bitmap: b, dry: dryRun, chosen: slices.Clone(svc.Spec.Ports)}
			return p.make(old)
		})
		if err != nil {
			return err
		}
		svc.Spec.Ports, c.newPorts = p.chosen, p.taken
		if p.health != 0 {
			svc.Spec.HealthCheckNodePort = p.health
		}
	}
	now := portsOf(svc)
	if old != nil && wantsHealthPort(old) && !wantsHealthPort(svc) {
		now = slices.DeleteFunc(now, func(n int) bool { return n == int(old.Spec.HealthCheckNodePort) })
	}
	for _, n := range held {
		if !slices.Contains(now, n) && !slices.Contains(c.newPorts, n) {
			c.oldPorts = append(c.oldPorts, n)
		}
	}
	return nil
}

// repeatsPort reports whether two ports of svc have the same node port and protocol.
func repeatsPort(svc *corev1.Service) bool {
	for i, p := range svc.Spec.Ports {
		if p.NodePort != 0 &&
			slices.ContainsFunc(svc.Spec.Ports[:i],
				func(o corev1.ServicePort) bool { return o.NodePort == p.NodePort && o.Protocol == p.Protocol }) {
			return true
		}
	}
	return false
}

// needsNew reports whether svc needs a port that the old service does not hold.
func needsNew(svc, old *corev1.Service, held []int) bool {
	if beginsHealthPort(svc, old) && !slices.Contains(held, int(svc.Spec.HealthCheckNodePort)) {
		return true
	}
	return hasPorts(svc) && slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
		if p.NodePort == 0 {
			return wantsPorts(svc)
		}
		return !slices.Contains(held, int(p.NodePort))
	})
}

// beginsHealthPort reports whether svc needs a health check node port and old had none. Validation
// rejects a change of an existing health check node port.
func beginsHealthPort(svc, old *corev1.Service) bool {
	return wantsHealthPort(svc) && (old == nil || !wantsHealthPort(old))
}

// portPlan is an attempt to choose the ports of a service, based on one state of the bitmap. It
// does not change the service, because the transaction may repeat the attempt with a newer bitmap.
type portPlan struct {
	svc    *corev1.Service
	held   []int
	ports  *Ports
	bitmap *bitmap
	dry    bool

	chosen []corev1.ServicePort
	taken  []int
	health int32
}

func (p *portPlan) make(old *corev1.Service) error {
	if hasPorts(p.svc) {
		for i := range p.chosen {
			if err := p.port(i, old != nil); err != nil {
				return err
			}
		}
	}
	if !beginsHealthPort(p.svc, old) {
		return nil
	}
	want := int(p.svc.Spec.HealthCheckNodePort)
	if want != 0 && slices.Contains(p.held, want) {
		return nil
	}
	n, err := p.any(want)
	if err != nil {
		if want != 0 {
			err = fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %w", want, err)
		} else {
			err = fmt.Errorf("failed to allocate a HealthCheck NodePort %v: %w", want, err)
		}
		return apierrors.NewInternalError(err)
	}
	p.health = int32(n)
	return nil
}

// port chooses the node port of the service port with index i. On create, service ports with the
// same number, such as 53 for TCP and UDP, get the same node port.
func (p *portPlan) port(i int, update bool) error {
	sp := &p.chosen[i]
	if sp.NodePort == 0 && !wantsPorts(p.svc) {
		return nil
	}
	if sp.NodePort == 0 && !update {
		for _, other := range p.chosen {
			if other.Port == sp.Port && other.NodePort != 0 {
				sp.NodePort = other.NodePort
				break
			}
		}
	}
	n := int(sp.NodePort)
	if update && n != 0 &&
		slices.ContainsFunc(p.chosen[:i], func(o corev1.ServicePort) bool {
			return o.NodePort == sp.NodePort &&
				o.Protocol == sp.Protocol
		}) {
		return fmt.Errorf("duplicate nodePort: {%s %d}", sp.Protocol, n)
	}
	if n != 0 && p.has(i, update) {
		return nil
	}
	got, err := p.any(n)
	if err != nil && n == 0 {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
	}
	if err != nil {
		return invalid(p.svc, field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"), n, err.Error()))
	}
	sp.NodePort = int32(got)
	return nil
}

// has reports whether the node port of the service port with index i needs no allocation: on
// update, because the service or this plan already has it, and on create, because an earlier
// service port with the same number has it.
func (p *portPlan) has(i int, update bool) bool {
	sp := p.chosen[i]
	if update {
		return slices.Contains(p.held, int(sp.NodePort)) || slices.Contains(p.taken, int(sp.NodePort))
	}
	first := slices.IndexFunc(p.chosen, func(o corev1.ServicePort) bool { return o.Port == sp.Port })
	return first < i && p.chosen[first].NodePort == sp.NodePort
}

// any allocates the node port want, or any free node port if want is 0, and returns it.
func (p *portPlan) any(want int) (int, error) {
	var err error
	switch {
	case want == 0 && p.dry:
		want = p.dryRunPort()
	case want == 0:
		want, err = p.ports.takeAny(p.bitmap)
	case p.dry && !p.ports.pool.Contains(want): // as in Kubernetes, a dry run does not check the range
	default:
		err = p.ports.take(p.bitmap, want)
	}
	if err == nil {
		p.taken = append(p.taken, want)
	}
	return want, err
}

// dryRunPort returns the port that a dry run shows for a port to be allocated. As in Kubernetes,
// the port may be taken.
func (p *portPlan) dryRunPort() int {
	if len(p.taken) == 0 {
		return firstDryRunPort
	}
	return slices.Max(p.taken) + 1
}
