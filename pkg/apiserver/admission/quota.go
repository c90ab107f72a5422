// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	p.SetQuotaConfiguration(quota.Configuration(nil, deps.Clock, quotaDevices(deps)))
	return p, nil
}

// quotaDevices asks for pods and claims when they are needed, which is seldom: to
// keep all pods only for that would be dear.
func quotaDevices(deps Deps) quota.Devices {
	return quota.Devices{
		Classes: deps.Informers.Resource().V1().DeviceClasses().Lister(),
		Pod: func(namespace, name string) (*corev1.Pod, error) {
			return deps.Client.CoreV1().Pods(namespace).Get(context.Background(), name, metav1.GetOptions{})
		},
		Claims: func(namespace string) ([]*resourcev1.ResourceClaim, error) {
			list, err := deps.Client.ResourceV1().ResourceClaims(namespace).List(context.Background(), metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			out := make([]*resourcev1.ResourceClaim, len(list.Items))
			for i := range list.Items {
				out[i] = &list.Items[i]
			}
			return out, nil
		},
	}
}
