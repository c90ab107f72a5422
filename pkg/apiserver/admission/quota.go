// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"

	"keelson.dev/keelson/pkg/quota"
)

// quotaWorkers is how many writes wait for quotas at once.
const quotaWorkers = 5

// newResourceQuota charges writes to the quotas of their namespace. The
// charging is the library's; what objects count for is package quota's.
func newResourceQuota(deps Deps) (admission.Interface, error) {
	settings, err := resourcequota.LoadConfiguration(deps.settings)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	p, err := resourcequota.NewResourceQuota(settings, quotaWorkers)
	if err != nil {
		return nil, err
	}
	p.SetDrainedNotification(deps.Drained)
	p.SetExternalKubeClientSet(deps.Client)
	p.SetExternalKubeInformerFactory(deps.Informers)
	p.SetQuotaConfiguration(quota.Configuration(nil, deps.Clock))
	return p, nil
}
