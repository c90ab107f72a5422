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
	"keelson.dev/keelson/pkg/api/admissionregistration"
)

// gates returns the feature gates for the library's plugins. All have the library's defaults.
func gates() featuregate.FeatureGate { return utilfeature.DefaultFeatureGate }

// rediscover is the minimum interval at which a mapper reads discovery again.
const rediscover = time.Second

// NewMapper returns a mapper from kinds to resources, including custom resources. It reads the
// discovery of the server when it is first used, and again for an unknown kind.
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

// again reports whether discovery may be read again, because rediscover has passed since the last
// time.
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

// exclusions is an initializer that excludes reviews of identity and access from admission
// policies.
type exclusions struct{}

// Initialize passes the excluded resources to a plugin that supports exclusions.
func (exclusions) Initialize(plugin admission.Interface) {
	wants, ok := plugin.(initializer.WantsExcludedAdmissionResources)
	if !ok {
		return
	}
	wants.SetExcludedAdmissionResources(admissionregistration.Reviews())
}
