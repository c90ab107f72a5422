// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"

	"keelson.dev/api/clock"
)

// Controller is one controller.
type Controller interface {
	// Run works until ctx ends. Caches are filled when it is called.
	Run(ctx context.Context) error
}

// Deps are what controllers are given. They share the caches.
type Deps struct {
	// Client acts as the controller's own service account, if the operator wants it so.
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	Metadata  metadata.Interface
	Discovery discovery.DiscoveryInterface
	Mapper    meta.ResettableRESTMapper
	Events    record.EventRecorder
	Clock     clock.Clock
	Log       *slog.Logger
	// Metrics is where a controller registers its metrics; nil: nowhere.
	Metrics prometheus.Registerer
	Options Options
}

// Evictions say from how many nodes in a second pods are evicted, in each zone.
type Evictions struct {
	// Rate is that of a zone, SecondaryRate that of one with more nodes than
	// LargeZone of which the fraction Threshold or more is not ready; in smaller
	// ones pods then stay.
	Rate, SecondaryRate float64
	LargeZone           int
	Threshold           float64
}

// KeyPair is a certificate with its key, in PEM.
type KeyPair struct{ Cert, Key []byte }

// Slices bound what is written of the endpoints of a Service.
type Slices struct {
	// MaxEndpoints is how many endpoints a slice has at most, MaxMirrored how many
	// addresses of a subset of Endpoints are mirrored.
	MaxEndpoints, MaxMirrored int
	// Batch is how long changes of pods are gathered before slices are written,
	// MirrorBatch the same for Endpoints that are mirrored.
	Batch, MirrorBatch time.Duration
}

// Options are what the operator sets.
type Options struct {
	// AllocateNodeCIDRs gives nodes ranges of ClusterCIDRs of the size of NodeMasks, one for each family.
	AllocateNodeCIDRs bool
	ClusterCIDRs      []netip.Prefix
	ServiceCIDRs      []netip.Prefix
	NodeMasks         []int
	// LoadBalancerRanges are what Services of type LoadBalancer get addresses from.
	LoadBalancerRanges []AddressRange
	// IngressAccount is the service account of the ingress proxy, which may read the Secrets
	// that Ingresses name; zero: there is none.
	IngressAccount types.NamespacedName
	// RootCA is the certificate by which pods know the API server, in PEM.
	RootCA []byte
	// TokenKey is the private key that signs tokens of service accounts, in PEM.
	TokenKey []byte
	// NodeGrace is how long a node may be silent, NodeStartupGrace a new one.
	NodeGrace, NodeStartupGrace time.Duration
	// Evictions bound how fast pods are evicted from nodes that are not ready.
	Evictions Evictions
	// EndedPods is how many ended pods are kept; all when it is not positive.
	EndedPods int
	// SigningCert and SigningKey are the authority that signs certificates, in PEM.
	SigningCert, SigningKey []byte
	// Signers are the authorities of single signers, by their names, instead of that one.
	Signers map[string]KeyPair
	// SigningDuration is for how long what it signs is valid.
	SigningDuration time.Duration
	// ApproveServing has kubelets' requests for serving certificates approved, if
	// they are for names and addresses of their own nodes.
	ApproveServing bool
	// ProtectNodes limits automatic approval of kubelets' client certificates to new nodes and to a
	// node's own renewal. Requests for other existing nodes wait for manual approval.
	ProtectNodes bool
	// ServerNames are names and addresses of the API server; nodes cannot use them.
	ServerNames []string
	// Autoscaling is how autoscalers of pods go about.
	Autoscaling Autoscaling
	// Slices bound slices of endpoints.
	Slices Slices
	// NoProvisioning has claims wait for volumes that somebody made.
	NoProvisioning bool
	// KeepAttached has volumes stay attached that a node may have in use, however
	// long the node has been unwell, until it is tainted as out of service.
	KeepAttached bool
	// Periods are how often things are done in any case.
	Periods Periods
	// Workers is how many keys a controller works on at once.
	Workers int
}
