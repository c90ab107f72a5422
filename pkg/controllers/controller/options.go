// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Options are the operator's settings.
type Options struct {
	// Workers is the number of keys that a controller syncs at once.
	Workers int
	// Periods are the intervals of periodic work.
	Periods Periods

	// Networks. AllocateNodeCIDRs gives each node a range out of ClusterCIDRs, one for each
	// address family, with the prefix length in NodeMasks. LoadBalancerRanges are the addresses
	// for Services of type LoadBalancer. Slices limits EndpointSlices.
	AllocateNodeCIDRs  bool
	ClusterCIDRs       []netip.Prefix
	ServiceCIDRs       []netip.Prefix
	NodeMasks          []int
	LoadBalancerRanges []AddressRange
	Slices             Slices

	// Service accounts. RootCA is the certificate with which pods verify the API server, and
	// TokenKey the private key that signs tokens, both in PEM. IngressAccount is the service
	// account of the ingress proxy, which may read the Secrets that Ingresses name; it is zero
	// if there is no ingress proxy.
	RootCA         []byte
	TokenKey       []byte
	IngressAccount types.NamespacedName

	// Nodes and pods. NodeGrace is the time without a heartbeat after which a node is not ready,
	// and NodeStartupGrace the same time for a node that has not reported yet. EndedPods is the
	// number of ended pods to keep, or all if it is not positive.
	NodeGrace, NodeStartupGrace time.Duration
	Evictions                   Evictions
	EndedPods                   int
	Autoscaling                 Autoscaling

	// Certificates. SigningCert and SigningKey are the default certificate authority, in PEM.
	// Signers has the authorities that replace it for one signer, by signer name. SigningDuration
	// is how long signed certificates are valid.
	SigningCert, SigningKey []byte
	Signers                 map[string]KeyPair
	SigningDuration         time.Duration
	// ApproveServing approves kubelets' requests for serving certificates, if all names and
	// addresses are those of their own nodes.
	ApproveServing bool
	// ProtectNodes limits automatic approval of kubelets' client certificates to new nodes and to
	// a node's own renewal. Requests for other existing nodes wait for manual approval.
	ProtectNodes bool
	// ServerNames are names and addresses of the API server, which nodes must not use.
	ServerNames []string

	// NoProvisioning makes claims wait for volumes that an administrator created.
	NoProvisioning bool
	// KeepAttached keeps volumes attached that an unhealthy node may still use, until the node
	// is tainted as out of service.
	KeepAttached bool
}

// KeyPair is a certificate with its key, in PEM.
type KeyPair struct{ Cert, Key []byte }

// Evictions limit how fast pods are evicted from nodes that are not ready.
type Evictions struct {
	// Rate is the number of nodes per second in a healthy zone. SecondaryRate is used in a zone
	// with more than LargeZone nodes if at least the fraction Threshold of them is not ready. If a
	// smaller zone has that many nodes which are not ready, no pods are evicted there.
	Rate, SecondaryRate float64
	LargeZone           int
	Threshold           float64
}

// Slices limits the size of EndpointSlices and how often they are written.
type Slices struct {
	// MaxEndpoints is the maximum number of endpoints in a slice, MaxMirrored the maximum number
	// of addresses that are mirrored from a subset of Endpoints.
	MaxEndpoints, MaxMirrored int
	// Batch is how long to collect changes of pods before slices are written, and MirrorBatch how
	// long to collect changes of Endpoints that are mirrored.
	Batch, MirrorBatch time.Duration
}

// DefaultSlices returns Kubernetes' defaults.
func DefaultSlices() Slices { return Slices{MaxEndpoints: 100, MaxMirrored: 1000} }

// Autoscaling are the settings of HorizontalPodAutoscalers.
type Autoscaling struct {
	// Period is the interval at which each autoscaler is evaluated.
	Period time.Duration
	// DownWindow is the stabilization window for scaling down: how long an earlier, higher
	// recommendation prevents scaling below it. Tolerance is the relative deviation from the target
	// that changes nothing. An autoscaler's own behavior field overrides both.
	DownWindow time.Duration
	Tolerance  float64
	// CPUInitialization is the time after a pod's start in which its CPU samples may be ignored.
	// ReadinessDelay is the time after the start in which a pod that is not ready counts as one
	// that has never been ready.
	CPUInitialization, ReadinessDelay time.Duration
}

// DefaultAutoscaling returns Kubernetes' defaults.
func DefaultAutoscaling() Autoscaling {
	return Autoscaling{
		Period: 15 * time.Second, DownWindow: 5 * time.Minute, Tolerance: 0.1,
		CPUInitialization: 5 * time.Minute, ReadinessDelay: 30 * time.Second,
	}
}

// Periods are intervals of periodic work.
type Periods struct {
	// Quotas is the interval at which all quotas are counted, Claims the interval for claims that
	// wait for a volume, Namespaces the interval for terminating namespaces, and Attachments the
	// interval at which the volumes of all nodes are synced (0 for never).
	Quotas, Claims, Namespaces, Attachments time.Duration
	// LegacyTokens is how long a token Secret must be unused before it is marked as invalid. After
	// the same time with the mark it is deleted. It applies to token Secrets that were generated.
	LegacyTokens time.Duration
}

// DefaultPeriods returns Kubernetes' defaults.
func DefaultPeriods() Periods {
	return Periods{
		Quotas: 5 * time.Minute, Claims: 15 * time.Second, Namespaces: 5 * time.Minute, Attachments: time.Minute,
		LegacyTokens: 365 * 24 * time.Hour,
	}
}

// AddressRange is the addresses of one family from First to Last, both included.
type AddressRange struct{ First, Last netip.Addr }

// Contains reports whether an address is in the range.
func (r AddressRange) Contains(a netip.Addr) bool {
	return a.Is6() == r.First.Is6() && !a.Less(r.First) && !r.Last.Less(a)
}

// ParseAddressRange parses FIRST-LAST, a prefix, or one address.
func ParseAddressRange(s string) (AddressRange, error) {
	first, last, ok := strings.Cut(s, "-")
	if !ok {
		if p, err := netip.ParsePrefix(s); err == nil {
			return prefixRange(p), nil
		}
		last = first
	}
	var r AddressRange
	var err error
	if r.First, err = netip.ParseAddr(first); err != nil {
		return r, fmt.Errorf("address range %q: %w", s, err)
	}
	if r.Last, err = netip.ParseAddr(last); err != nil {
		return r, fmt.Errorf("address range %q: %w", s, err)
	}
	if r.First.Is6() != r.Last.Is6() || r.Last.Less(r.First) {
		return r, fmt.Errorf("address range %q: must have its lowest address first", s)
	}
	return r, nil
}

func prefixRange(p netip.Prefix) AddressRange {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b) // b has the length of an address
	return AddressRange{p.Masked().Addr(), last}
}
