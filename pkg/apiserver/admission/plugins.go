// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission is the chain that every write passes after authorization:
// plugins by Kubernetes' names, in Kubernetes' order. Mutating plugins fill in
// what the cluster decides, validating ones refuse what policy forbids.
//
// Plugins fail closed: one that cannot read what it needs refuses the write.
// They read from informers; where a hint that is a moment old would refuse a
// write that ought to pass, they look again at the store.
package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store"
	"keelson.dev/keelson/pkg/apiserver/admission/webhooks"
	"keelson.dev/keelson/pkg/apiserver/nodeauth"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/nodeclaims"
	"keelson.dev/keelson/pkg/outbound"
)

// Deps are what plugins are made from.
type Deps struct {
	// Enable and Disable change which plugins run.
	Enable, Disable []string
	// Only are the plugins that run, in the place of Enable and Disable; empty: those say.
	Only       []string
	Client     kubernetes.Interface
	Dynamic    dynamic.Interface
	Informers  informers.SharedInformerFactory
	Authorizer authorizer.Authorizer
	Graph      *nodeauth.Graph
	// Nodes is the store of nodes, which is there once requests are.
	Nodes func() store.Reader
	Clock clock.Clock
	Log   *slog.Logger
	// Metrics registers how long plugins take; nil: nobody asks.
	Metrics prometheus.Registerer
	Mapper  meta.RESTMapper // of kinds to resources
	// EndpointRouting reaches webhooks by endpoints instead of cluster IPs.
	EndpointRouting bool
	// Reserved are names and addresses that no node may have.
	Reserved nodeclaims.Reserved
	// NodeAddresses are the ranges that node addresses must be in; empty allows any address.
	NodeAddresses []netip.Prefix
	// Outbound says which addresses webhooks may have.
	Outbound outbound.Policy
	// Tracing is where the spans of calls go; nil: nowhere.
	Tracing *daemon.Tracing
	// NotReadySeconds and UnreachableSeconds are how long pods stay on a node that is
	// not ready or does not answer, unless they say otherwise.
	NotReadySeconds, UnreachableSeconds int64
	// ConfigFile is an AdmissionConfiguration; empty: plugins keep their defaults.
	ConfigFile string
	// Drained is closed when the server stops.
	Drained <-chan struct{}

	// settings are the plugin's own of the configuration; nil: there are none.
	settings io.Reader
}

// Chain asks plugins in order.
type Chain struct {
	*metered
	// Webhooks has the health of webhooks.
	Webhooks *webhooks.Book
	names    []string
}

// Names are the plugins that run, in order.
func (c *Chain) Names() []string { return slices.Clone(c.names) }

// plugin is one entry of the chain.
type plugin struct {
	name string
	// optional plugins run only where they are enabled by name.
	optional bool
	build    func(Deps) (admission.Interface, error)
}

// plugins is the chain, in order.
func plugins() []plugin {
	return []plugin{
		{name: "AlwaysAdmit", optional: true, build: newAlwaysAdmit},
		{name: "NamespaceAutoProvision", optional: true, build: newNamespaceProvision},
		{name: lifecycle.PluginName, build: newLifecycle},
		{name: "NamespaceExists", optional: true, build: newNamespaceExists},
		{name: "LimitPodHardAntiAffinityTopology", optional: true, build: newAntiAffinity},
		{name: "LimitRanger", build: newLimitRanger},
		{name: "ServiceAccount", build: newServiceAccount},
		{name: "NodeRestriction", optional: true, build: newNodeRestriction},
		{name: "NodeOwnership", optional: true, build: newNodeOwnership},
		{name: "TaintNodesByCondition", build: newTaintNodes},
		{name: "AlwaysPullImages", optional: true, build: newAlwaysPull},
		{name: "ImagePolicyWebhook", optional: true, build: newImagePolicy},
		{name: "PodSecurity", build: newPodSecurity},
		{name: "PodNodeSelector", optional: true, build: newNodeSelectors},
		{name: "Priority", build: newPriority},
		{name: "DefaultTolerationSeconds", build: newTolerationSeconds},
		{name: "PodTolerationRestriction", optional: true, build: newTolerations},
		{name: "EventRateLimit", optional: true, build: newEventRates},
		{name: "ExtendedResourceToleration", optional: true, build: newResourceToleration},
		{name: "DefaultStorageClass", build: newDefaultStorageClass},
		{name: "StorageObjectInUseProtection", build: newInUseProtection},
		{name: "PodGroupProtection", build: newIdle},
		{name: "OwnerReferencesPermissionEnforcement", optional: true, build: newOwnerReferences},
		{name: "PersistentVolumeClaimResize", build: newClaimResize},
		{name: "RuntimeClass", build: newRuntimeClass},
		{name: "CertificateApproval", build: newCertificateApproval},
		{name: "CertificateSigning", build: newCertificateSigning},
		{name: "ClusterTrustBundleAttest", build: newTrustBundleAttest},
		{name: "CertificateSubjectRestriction", build: newSubjectRestriction},
		{name: "DefaultIngressClass", build: newDefaultIngressClass},
		{name: "EndpointOwnership", optional: true, build: newEndpointOwnership},
		{name: "IngressHosts", optional: true, build: newIngressHosts},
		{name: "DenyServiceExternalIPs", optional: true, build: newDenyExternalIPs},
		{name: "PodTopologyLabels", build: newTopologyLabels},
		{name: "PodGroupWorkloadExists", build: newIdle},
		{name: "NodeDeclaredFeatureValidator", build: newDeclaredFeatures},
		{name: "JobValidation", build: newIdle},
		{name: "PodResizeValidator", build: newPodResize},
		{name: "MutatingAdmissionPolicy", build: newMutatingPolicy},
		{name: "MutatingAdmissionWebhook", build: newMutatingWebhook},
		{name: "ValidatingAdmissionPolicy", build: newValidatingPolicy},
		{name: "ValidatingAdmissionWebhook", build: newValidatingWebhook},
		{name: "ResourceQuota", build: newResourceQuota},
		{name: "AlwaysDeny", optional: true, build: newAlwaysDeny},
	}
}

// checkNames says what is wrong with the names of plugins to switch on and off.
func checkNames(only, enable, disable []string) error {
	var errs []error
	if len(only) > 0 && len(enable)+len(disable) > 0 {
		errs = append(errs, errors.New("admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive"))
	}
	all := plugins()
	for _, f := range []struct {
		flag  string
		names []string
	}{{"admission-control", only}, {"enable-admission-plugins", enable}, {"disable-admission-plugins", disable}} {
		for _, name := range f.names {
			if !slices.ContainsFunc(all, func(p plugin) bool { return p.name == name }) {
				errs = append(errs, fmt.Errorf("%s plugin %q is unknown", f.flag, name))
			}
		}
	}
	both := sets.List(sets.New(enable...).Intersection(sets.New(disable...)))
	if len(both) > 0 {
		errs = append(errs, fmt.Errorf("%v in enable-admission-plugins and disable-admission-plugins overlapped", both))
	}
	return utilerrors.NewAggregate(errs)
}

// runs tells whether a plugin is in the chain.
func (d *Deps) runs(p plugin) bool {
	if len(d.Only) > 0 {
		return slices.Contains(d.Only, p.name)
	}
	return (!p.optional || slices.Contains(d.Enable, p.name)) && !slices.Contains(d.Disable, p.name)
}

// New builds the chain. It starts nothing; plugins that work in the background
// do so until ctx is done or Deps.Drained is closed.
func New(_ context.Context, deps Deps) (*Chain, error) {
	if err := checkNames(deps.Only, deps.Enable, deps.Disable); err != nil {
		return nil, err
	}
	all := plugins()
	registered := admission.NewPlugins()
	book, err := newBook(deps)
	if err != nil {
		return nil, err
	}
	chain := &Chain{Webhooks: book}
	for _, p := range all {
		if !deps.runs(p) {
			continue
		}
		registered.Register(p.name, func(settings io.Reader) (admission.Interface, error) {
			own := deps
			own.settings = settings
			return p.build(own)
		})
		chain.names = append(chain.names, p.name)
	}
	// The library's chain runs mutating plugins again where a later one asks for it.
	init, err := initialize(deps, chain.Webhooks)
	if err != nil {
		return nil, err
	}
	meters, err := newMeters(deps.Clock, deps.Metrics)
	if err != nil {
		return nil, err
	}
	config, err := admission.ReadAdmissionConfiguration(chain.names, deps.ConfigFile, configScheme())
	if err != nil {
		return nil, fmt.Errorf("failed to apply admission: failed to read plugin config: %w", err)
	}
	inner, err := registered.NewFromPlugins(chain.names, config, init, admission.Decorators{
		admission.DecoratorFunc(meters.plugin),
	})
	if err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	chain.metered = meters.all(inner)
	return chain, nil
}

// configScheme knows the kinds of the configuration file.
func configScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	install.Install(s)
	return s
}

// initialize hands the library's plugins what they ask for.
func initialize(deps Deps, book *webhooks.Book) (admission.PluginInitializer, error) {
	callers, err := webhookInitializer(deps, book)
	if err != nil {
		return nil, err
	}
	return admission.PluginInitializers{
		initializer.New(deps.Client, deps.Dynamic, deps.Informers, deps.Authorizer,
			gates(), compatibility.DefaultBuildEffectiveVersion(), deps.Drained, deps.Mapper),
		exclusions{}, callers,
	}, nil
}

func newLifecycle(Deps) (admission.Interface, error) {
	l, err := lifecycle.NewLifecycle(sets.New("default", "kube-system", "kube-public"))
	if err != nil {
		return nil, fmt.Errorf("namespace lifecycle: %w", err)
	}
	return namespaceLifecycle{l}, nil
}

// namespaceLifecycle is the library's plugin, except that updates of objects that exist do not need
// their namespace. The objects may be left of a namespace that was finalized by hand, and have to
// lose their own finalizers. Kubernetes does so from 1.37 on (kubernetes/kubernetes#140661).
type namespaceLifecycle struct{ *lifecycle.Lifecycle }

// Admit refuses to create objects in namespaces that end or do not exist.
func (l namespaceLifecycle) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if a.GetOperation() == admission.Update && a.GetOldObject() != nil {
		return nil
	}
	return l.Lifecycle.Admit(ctx, a, o)
}
