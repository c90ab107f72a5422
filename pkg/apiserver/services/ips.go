// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	networkingclient "k8s.io/client-go/kubernetes/typed/networking/v1"
)

// Labels of the IPAddress objects that belong to services.
const (
	familyLabel  = "ipaddress.kubernetes.io/ip-family"
	managerLabel = "ipaddress.kubernetes.io/managed-by"
	manager      = "ipallocator.k8s.io"
)

var (
	errMismatch  = errors.New("the provided network does not match the current range")
	errAllocated = errors.New("provided IP is already allocated")
	errFull      = errors.New("range is full")
)

// IPs allocates cluster IPs. It is safe for concurrent use.
type IPs struct {
	// Client writes IPAddress objects.
	Client networkingclient.IPAddressInterface
	// Known reports whether this server's cache has an IPAddress with that name. Addresses for which
	// it returns true are tried last, which saves failed creates. It may be nil.
	Known func(name string) bool
	// Ranges returns the ranges of a family to allocate from.
	Ranges func(family corev1.IPFamily) []netip.Prefix

	mu     sync.Mutex
	random *rand.Rand
}

// NewIPs returns an allocator of cluster IPs. The caller must not use random afterwards.
func NewIPs(client networkingclient.IPAddressInterface, known func(string) bool,
	ranges func(corev1.IPFamily) []netip.Prefix, random *rand.Rand) *IPs {
	return &IPs{Client: client, Known: known, Ranges: ranges, random: random}
}

// take allocates the address ip for svc.
func (a *IPs) take(ctx context.Context, svc *corev1.Service, family corev1.IPFamily, ip netip.Addr, dryRun bool) error {
	inRange := false
	for _, r := range a.Ranges(family) {
		inRange = inRange || usable(r, ip)
	}
	if !inRange {
		return errMismatch
	}
	if dryRun {
		return nil // as in Kubernetes, a dry run does not check whether the address is free
	}
	return a.create(ctx, svc, family, ip)
}

func (a *IPs) create(ctx context.Context, svc *corev1.Service, family corev1.IPFamily, ip netip.Addr) error {
	_, err := a.Client.Create(ctx, &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name:   ip.String(),
			Labels: map[string]string{familyLabel: string(family), managerLabel: manager},
		},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
			Resource: "services", Namespace: svc.Namespace, Name: svc.Name,
		}},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return errAllocated
	}
	return err
}

// takeAny allocates any free address of family for svc. A dry run returns the first address of the
// range without looking for a free one, as in Kubernetes.
func (a *IPs) takeAny(ctx context.Context, svc *corev1.Service, family corev1.IPFamily,
	dryRun bool) (netip.Addr, error) {
	for _, r := range a.Ranges(family) {
		if dryRun {
			return r.Masked().Addr(), nil
		}
		ip, err := a.takeFrom(ctx, svc, family, r)
		if err == nil || !errors.Is(err, errFull) {
			return ip, err
		}
	}
	return netip.Addr{}, errFull
}

// secondLooks is the maximum number of addresses that takeFrom tries although the cache has an
// IPAddress for them.
const secondLooks = 256

// takeFrom allocates an address of r, from the upper band if possible. The lower band is for
// addresses that users choose, so it is used only if the upper band is full. Addresses that the
// cache has are tried last: the cache may be outdated, so they may be free.
func (a *IPs) takeFrom(ctx context.Context, svc *corev1.Service, family corev1.IPFamily,
	r netip.Prefix) (netip.Addr, error) {
	size := hosts(r)
	low := band(size, 16, 256, 16)
	var seemedTaken []netip.Addr
	for _, part := range [][2]uint64{{low, size}, {0, low}} {
		n := part[1] - part[0]
		if n == 0 {
			continue
		}
		start := a.draw(n)
		for i := range n {
			ip := nth(r, part[0]+(start+i)%n)
			if a.Known != nil && a.Known(ip.String()) {
				if len(seemedTaken) < secondLooks {
					seemedTaken = append(seemedTaken, ip)
				}
				continue
			}
			if done, err := a.try(ctx, svc, family, ip); done {
				return ip, err
			}
		}
	}
	for _, ip := range seemedTaken {
		if done, err := a.try(ctx, svc, family, ip); done {
			return ip, err
		}
	}
	return netip.Addr{}, errFull
}

// try allocates the cluster IP ip. It returns false if ip is already allocated.
func (a *IPs) try(ctx context.Context, svc *corev1.Service, family corev1.IPFamily, ip netip.Addr) (done bool,
	err error) {
	if err := ctx.Err(); err != nil {
		return true, err
	}
	err = a.take(ctx, svc, family, ip, false)
	return !errors.Is(err, errAllocated), err
}

func (a *IPs) draw(n uint64) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.random.Uint64N(n)
}

// release frees a cluster IP if it still belongs to the service.
func (a *IPs) release(ctx context.Context, svc *corev1.Service, name string) error {
	cur, err := a.Client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("address %s: %w", name, err)
	}
	if p := cur.Spec.ParentRef; p == nil || p.Namespace != svc.Namespace || p.Name != svc.Name ||
		p.Resource != "services" {
		return nil
	}
	err = a.Client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &cur.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("address %s: %w", name, err)
	}
	return nil
}

// hosts returns the number of usable addresses of r: all except its network address and, for IPv4,
// its broadcast address. A range with more than 2^62 addresses counts as one with 2^62.
func hosts(r netip.Prefix) uint64 {
	bits := r.Addr().BitLen() - r.Bits()
	if bits > 62 {
		bits = 62
	}
	n := uint64(1) << bits
	if r.Addr().Is4() {
		if n < 2 {
			return 0
		}
		return n - 2
	}
	return n - 1
}

// nth returns the usable address of r with index i, counted from 0.
func nth(r netip.Prefix, i uint64) netip.Addr {
	b := r.Masked().Addr().As16()
	carry := i + 1
	for j := 15; j >= 0 && carry > 0; j-- {
		carry += uint64(b[j])
		b[j] = byte(carry)
		carry >>= 8
	}
	ip := netip.AddrFrom16(b)
	if r.Addr().Is4() {
		return ip.Unmap()
	}
	return ip
}

// usable reports whether ip is a usable address of r.
func usable(r netip.Prefix, ip netip.Addr) bool {
	if !r.Contains(ip) || ip == r.Masked().Addr() {
		return false
	}
	return !ip.Is4() || r.Contains(ip.Next())
}

// band returns the size of the lower band of a range, which is for addresses and ports that users
// choose. It is 1/fraction of the range, but at least low and at most high. A small range has no
// lower band, so the result is 0.
func band(size, low, high, fraction uint64) uint64 {
	if size <= low {
		return 0
	}
	return min(max(size/fraction, low), high)
}

// FirstIP returns the address of the "kubernetes" service: the first usable address of r.
func FirstIP(r netip.Prefix) netip.Addr { return nth(r, 0) }
