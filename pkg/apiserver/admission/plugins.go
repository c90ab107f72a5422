// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission is the chain of admission plugins, which every write passes after
// authorization. The plugins have Kubernetes' names and order, except that NodeOwnership,
// RestoreHold, EndpointOwnership and IngressHosts exist only here. Mutating plugins set fields of
// objects, such as defaults. Validating plugins reject writes.
//
// A plugin that cannot read the data that it needs rejects the write. Plugins read from informers,
// whose data may be outdated. If a plugin would reject a write because of such data, it first reads
// the store.
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
	"keelson.dev/keelson/pkg/release"
)

// Deps are the dependencies of the plugins.
type Deps struct {
	// Enable adds plugins to the default ones, and Disable removes plugins from them.
	Enable, Disable []string
	// Only are the names of all plugins that run, except RestoreHold, which always runs. If it is empty,
	// the default plugins run, changed by Enable and Disable.
	Only       []string
	Client     kubernetes.Interface
	Dynamic    dynamic.Interface
	Informers  informers.SharedInformerFactory
	Authorizer authorizer.UnconditionalAuthorizer
	Graph      *nodeauth.Graph
	// Marks are the nodes that are unreported or fenced after a restore.
	Marks *nodeauth.Marks
	// Nodes returns the store of nodes. It can be called only after the server has started.
	Nodes func() store.Reader
	Clock clock.Clock
	Log   *slog.Logger
	// Metrics is where the latency metrics of plugins are registered. Nil means no metrics.
	Metrics prometheus.Registerer
	Mapper  meta.RESTMapper // maps kinds to resources
	// If EndpointRouting is true, the server connects to the endpoints of a webhook's service instead
	// of its cluster IP.
	EndpointRouting bool
	// Emulated is the Kubernetes release whose pod security standards apply to namespaces that do not
	// name a release.
	Emulated release.Emulated
	// Reserved are the names and addresses that no node may have.
	Reserved nodeclaims.Reserved
	// NodeAddresses are the ranges in which addresses of nodes must be. If it is empty, any address is
	// allowed.
	NodeAddresses []netip.Prefix
	// Outbound decides to which addresses the server may connect to call webhooks.
	Outbound outbound.Policy
	// Tracing exports the spans of calls of webhooks. Nil means no tracing.
	Tracing *daemon.Tracing
	// NotReadySeconds and UnreachableSeconds are how long a pod stays on a node that is not ready or
	// not reachable, if the pod has no tolerations for these taints.
	NotReadySeconds, UnreachableSeconds int64
	// ConfigFile is the path of an AdmissionConfiguration. If it is empty, plugins use their defaults.
	ConfigFile string
	// Drained is closed when the server stops, after its requests have ended.
	Drained <-chan struct{}

	// settings is the part of the configuration file for the plugin that is being built. It is nil if
	// the file has no such part.
	settings io.Reader
}

// Chain runs the admission plugins in order.
type Chain struct {
	*metered
	// Webhooks has the health of webhooks.
	Webhooks *webhooks.Book
	names    []string
}

// Names returns the names of the plugins that run, in order.
func (c *Chain) Names() []string { return slices.Clone(c.names) }

// plugin is one entry of the chain.
type plugin struct {
	name string
	// If optional is true, the plugin runs only if Enable or Only contains its name.
	optional bool
	// If always is true, the plugin runs whatever Only and Disable contain.
	always bool
	build  func(Deps) (admission.Interface, error)
}

// plugins returns all plugins, in the order in which they run.
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
		{name: "RestoreHold", always: true, build: newRestoreHold},
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
		{name: "PodGroupProtection", build: newGroupProtection},
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
		{name: "NodeDeclaredFeatureValidator", build: newDeclaredFeatures},
		{name: "PodResizeValidator", build: newPodResize},
		{name: "MutatingAdmissionPolicy", build: newMutatingPolicy},
		{name: "MutatingAdmissionWebhook", build: newMutatingWebhook},
		{name: "ValidatingAdmissionPolicy", build: newValidatingPolicy},
		{name: "ValidatingAdmissionWebhook", build: newValidatingWebhook},
		{name: "ResourceQuota", build: newResourceQuota},
		{name: "AlwaysDeny", optional: true, build: newAlwaysDeny},
	}
}

// checkNames returns an error if a list of plugins contains an unknown name or conflicts with
// another.
func checkNames(only, enable, disable []string) error {
	var errs []error
	if len(only) > 0 && len(enable)+len(disable) > 0 {
		errs = append(errs, errors.New(
			"admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive"))
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
	for _, p := range all {
		if p.always && slices.Contains(disable, p.name) {
			errs = append(errs, fmt.Errorf("disable-admission-plugins plugin %q cannot be disabled", p.name))
		}
	}
	both := sets.List(sets.New(enable...).Intersection(sets.New(disable...)))
	if len(both) > 0 {
		errs = append(errs, fmt.Errorf("%v in enable-admission-plugins and disable-admission-plugins overlapped", both))
	}
	return utilerrors.NewAggregate(errs)
}

// runs reports whether a plugin is to be run.
func (d *Deps) runs(p plugin) bool {
	if p.always {
		return true
	}
	if len(d.Only) > 0 {
		return slices.Contains(d.Only, p.name)
	}
	return (!p.optional || slices.Contains(d.Enable, p.name)) && !slices.Contains(d.Disable, p.name)
}

// New builds the chain. Some plugins do work in the background until Deps.Drained is closed.
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
	// The library's chain also supports reinvocation: a mutating plugin can make the mutating plugins
	// before it run again.
	inner, err := registered.NewFromPlugins(chain.names, config, init, admission.Decorators{
		admission.DecoratorFunc(meters.plugin),
	})
	if err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}
	chain.metered = meters.all(inner)
	return chain, nil
}

// configScheme returns the scheme to decode the configuration file with.
func configScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	install.Install(s)
	return s
}

// initialize returns the initializer that passes dependencies to the library's plugins.
func initialize(deps Deps, book *webhooks.Book) (admission.PluginInitializer, error) {
	callers, err := webhookInitializer(deps, book)
	if err != nil {
		return nil, err
	}
	files, err := newManifests()
	if err != nil {
		return nil, err
	}
	return admission.PluginInitializers{
		initializer.New(deps.Client, deps.Dynamic, deps.Informers, authorizer.AuthorizerFunc(deps.Authorizer.Authorize),
			gates(), compatibility.DefaultBuildEffectiveVersion(), deps.Drained, deps.Mapper),
		exclusions{}, callers, files,
	}, nil
}

func newLifecycle(Deps) (admission.Interface, error) {
	l, err := lifecycle.NewLifecycle(sets.New("default", "kube-system", "kube-public"))
	if err != nil {
		return nil, fmt.Errorf("namespace lifecycle: %w", err)
	}
	return namespaceLifecycle{l}, nil
}

// namespaceLifecycle is the library's plugin NamespaceLifecycle, except that it allows updates of
// existing objects even if their namespace does not exist. A namespace that was finalized by hand
// may be gone before its objects, and then the objects' finalizers have to be removed. Kubernetes
// does the same from 1.37 on (kubernetes/kubernetes#140661).
type namespaceLifecycle struct{ *lifecycle.Lifecycle }

// Admit rejects creates in namespaces that do not exist or are terminating.
func (l namespaceLifecycle) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if a.GetOperation() == admission.Update && a.GetOldObject() != nil {
		return nil
	}
	return l.Lifecycle.Admit(ctx, a, o)
}
