// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/features"
)

// Options are the settings from the controller manager's flags.
type Options struct {
	// Features has the features of the emulated release.
	Features features.Options
	// Workers is the number of keys that a controller syncs at once.
	Workers int
	// Periods are the intervals of work that controllers do periodically.
	Periods Periods

	// Settings of networks. If AllocateNodeCIDRs is true, each node gets one range out of each of
	// ClusterCIDRs, at most one for each address family, with the prefix length in NodeMasks.
	// LoadBalancerRanges are the addresses for Services of type LoadBalancer. Slices limits
	// EndpointSlices.
	AllocateNodeCIDRs  bool
	ClusterCIDRs       []netip.Prefix
	ServiceCIDRs       []netip.Prefix
	NodeMasks          []int
	LoadBalancerRanges []AddressRange
	Slices             Slices

	// Settings of service accounts. RootCA is the certificate with which pods verify the API
	// server, and TokenKey the private key that signs tokens, both in PEM. IngressAccount is the
	// service account of the ingress proxy, which may read the Secrets that Ingresses name. It is
	// zero if there is no ingress proxy.
	RootCA []byte
	// ReadRootCA, if it is not nil, returns the present value of RootCA, which an operator may replace.
	ReadRootCA     func() []byte
	TokenKey       []byte
	IngressAccount types.NamespacedName

	// Settings of nodes and pods. NodeGrace is the time without a heartbeat after which a node is
	// marked as not ready, and NodeStartupGrace the corresponding time for a new node that has sent
	// no heartbeat yet. EndedPods is the number of ended pods to keep in the cluster; all are kept
	// if it is 0 or negative.
	NodeGrace, NodeStartupGrace time.Duration
	Evictions                   Evictions
	EndedPods                   int
	Autoscaling                 Autoscaling

	// Settings of certificates. SigningCert and SigningKey are the default certificate authority,
	// in PEM. Signers has certificate authorities for single signers by signer name; it is used
	// only if there is no default. SigningDuration is the maximum validity of signed certificates.
	SigningCert, SigningKey []byte
	// ReadSigning is the field Read of the pair SigningCert and SigningKey.
	ReadSigning     func() (KeyPair, error)
	Signers         map[string]KeyPair
	SigningDuration time.Duration
	// ApproveServing makes the controller approve kubelets' requests for serving certificates if
	// all requested names and addresses are those of the kubelet's own node.
	ApproveServing bool
	// ApproveProxies makes the controller approve a node's request for the client certificate of its
	// own proxy.
	ApproveProxies bool
	// ProtectNodes limits the automatic approval of kubelets' client certificates to new nodes and
	// to renewals by a node itself. Requests for the name of an existing node by other users wait
	// for manual approval.
	ProtectNodes bool
	// ServerNames are the names and addresses of the API server, which certificates of nodes must
	// not contain.
	ServerNames []string

	// NoProvisioning turns off the dynamic provisioning of volumes: PersistentVolumeClaims wait for
	// volumes that an administrator creates.
	NoProvisioning bool
	// KeepAttached prevents volumes from being detached from an unhealthy node that may still use
	// them, until the node is tainted as out of service.
	KeepAttached bool
}

// KeyPair is a certificate authority with its private key, in PEM. Cert may have several certificates;
// the one that belongs to the key is the authority's. Cross has certificates by which earlier
// authorities vouch for it, and may be empty.
type KeyPair struct {
	Cert, Key, Cross []byte
	// Read, if it is not nil, returns the present pair, which an operator may replace.
	Read func() (KeyPair, error)
}

// Evictions limit how fast pods are evicted from nodes that are not ready.
type Evictions struct {
	// Rate is the maximum number of nodes per second whose pods are evicted in a healthy zone.
	// SecondaryRate replaces Rate in a zone where at least the fraction Threshold of the nodes is
	// not ready, if the zone has more than LargeZone nodes. In a smaller zone with that fraction of
	// nodes not ready, no pods are evicted.
	Rate, SecondaryRate float64
	LargeZone           int
	Threshold           float64
}

// Slices limits the size of EndpointSlices and how often they are written.
type Slices struct {
	// MaxEndpoints is the maximum number of endpoints in a slice, MaxMirrored the maximum number of
	// addresses that are copied from one subset of an Endpoints object.
	MaxEndpoints, MaxMirrored int
	// Batch is how long the controller collects changes of pods before it writes slices.
	// MirrorBatch is how long it collects changes of Endpoints that it mirrors into slices.
	Batch, MirrorBatch time.Duration
}

// DefaultSlices returns Kubernetes' default limits.
func DefaultSlices() Slices { return Slices{MaxEndpoints: 100, MaxMirrored: 1000} }

// Autoscaling are the settings for all HorizontalPodAutoscalers.
type Autoscaling struct {
	// Period is the interval at which each autoscaler is evaluated.
	Period time.Duration
	// DownWindow is the stabilization window for scaling down: the target is not scaled below the
	// highest recommendation within this time. Tolerance is the relative deviation from the target
	// value up to which the number of replicas does not change. The field behavior of an autoscaler
	// overrides both settings.
	DownWindow time.Duration
	Tolerance  float64
	// CPUInitialization is the time after a pod's start during which its CPU samples may be
	// ignored. ReadinessDelay is another time after a pod's start: a pod that is not ready, and
	// whose Ready condition has not changed since that time ended, counts as a pod that has never
	// been ready.
	CPUInitialization, ReadinessDelay time.Duration
}

// DefaultAutoscaling returns Kubernetes' default settings.
func DefaultAutoscaling() Autoscaling {
	return Autoscaling{
		Period: 15 * time.Second, DownWindow: 5 * time.Minute, Tolerance: 0.1,
		CPUInitialization: 5 * time.Minute, ReadinessDelay: 30 * time.Second,
	}
}

// Periods are the intervals of work that controllers do periodically.
type Periods struct {
	// Quotas is the interval at which the usage of all ResourceQuotas is counted again, Claims the
	// interval at which PersistentVolumeClaims without a volume are retried, Namespaces the
	// interval at which terminating namespaces are synced, and Attachments the interval at which
	// the volumes of all nodes are synced (0 for never).
	Quotas, Claims, Namespaces, Attachments time.Duration
	// LegacyTokens is the time after which an unused generated token Secret is marked as invalid. A
	// marked Secret that stays unused for this time again is deleted.
	LegacyTokens time.Duration
}

// DefaultPeriods returns Kubernetes' default intervals.
func DefaultPeriods() Periods {
	return Periods{
		Quotas: 5 * time.Minute, Claims: 15 * time.Second, Namespaces: 5 * time.Minute, Attachments: time.Minute,
		LegacyTokens: 365 * 24 * time.Hour,
	}
}

// AddressRange is all IP addresses of one family from First to Last, including First and Last.
type AddressRange struct{ First, Last netip.Addr }

// Contains reports whether an address is in the range.
func (r AddressRange) Contains(a netip.Addr) bool {
	return a.Is6() == r.First.Is6() && !a.Less(r.First) && !r.Last.Less(a)
}

// ParseAddressRange parses a range in one of the forms FIRST-LAST, prefix in CIDR notation, or
// single address.
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
	last, _ := netip.AddrFromSlice(b) // b has the length of an IP address, so this cannot fail
	return AddressRange{p.Masked().Addr(), last}
}
