// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/component-base/featuregate"

	"keelson.dev/api/clock"
)

// gates returns the feature gates for the library's plugins. They have the library's default
// values.
func gates() featuregate.FeatureGate { return utilfeature.DefaultFeatureGate }

// rediscover is the minimum interval between two discoveries by a mapper.
const rediscover = time.Second

// NewMapper returns a mapper of kinds to resources, custom ones included. It reads the server's own
// discovery, and reads it again when it is asked about an unknown kind.
func NewMapper(client discovery.DiscoveryInterface, clk clock.Clock) meta.ResettableRESTMapper {
	return &mapper{ResettableRESTMapper: restmapper.NewDeferredDiscoveryRESTMapper(
		memory.NewMemCacheClient(client)), clock: clk}
}

type mapper struct {
	meta.ResettableRESTMapper
	clock clock.Clock

	mu    sync.Mutex
	asked time.Time
}

// RESTMapping returns the resource of a kind.
func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	found, err := m.ResettableRESTMapper.RESTMapping(kind, versions...)
	if !meta.IsNoMatchError(err) || !m.again() {
		return found, err
	}
	m.Reset()
	return m.ResettableRESTMapper.RESTMapping(kind, versions...)
}

// again reports whether enough time has passed for another discovery.
func (m *mapper) again() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	if now.Sub(m.asked) < rediscover {
		return false
	}
	m.asked = now
	return true
}

// exclusions exempts resources from admission policies: those that the cluster needs to work, and
// reviews of identity and access, which are not stored.
type exclusions struct{}

// Initialize passes the excluded resources to a plugin that accepts them.
func (exclusions) Initialize(plugin admission.Interface) {
	wants, ok := plugin.(initializer.WantsExcludedAdmissionResources)
	if !ok {
		return
	}
	wants.SetExcludedAdmissionResources(reviews())
}

// reviews returns the resources by which components ask who a client is and what the client may do.
// Objects of these resources are not stored.
func reviews() []schema.GroupResource {
	return []schema.GroupResource{
		{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"},
		{Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"},
		{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"},
		{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"},
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
	}
}
