// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/lru"

	"keelson.dev/keelson/pkg/quota"
)

const (
	// quotaWorkers is the number of goroutines that check quotas.
	quotaWorkers = 5
	// chargeAttempts is how many times a charge is written if other clients change the quota at the
	// same time.
	chargeAttempts = 30
	// quotasKept is the maximum number of quotas in quotaAccess.newer.
	quotasKept = 1000
)

// quotas is the plugin ResourceQuota. It charges the quotas of a namespace for each write: it adds
// the usage of the object to the quota's status. Kubernetes' library implements the charging, and
// package quota computes the usage of objects.
type quotas struct {
	*admission.Handler
	evaluator resourcequota.Evaluator
}

func newResourceQuota(deps Deps) (admission.Interface, error) {
	settings, err := resourcequota.LoadConfiguration(deps.settings)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	informer := deps.Informers.Core().V1().ResourceQuotas()
	access := &quotaAccess{
		client: deps.Client, lister: informer.Lister(), synced: informer.Informer().HasSynced, newer: lru.New(quotasKept),
	}
	c := quota.Configuration(deps.Clock, quotaDevices(deps))
	return &quotas{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		evaluator: resourcequota.NewQuotaEvaluator(access, c.IgnoredResources(),
			generic.NewRegistry(c.Evaluators()), nil, settings, quotaWorkers, deps.Drained),
	}, nil
}

// Validate implements admission.ValidationInterface.
func (q *quotas) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetNamespace() == "" || a.GetOperation() == admission.Create &&
		a.GetKind().GroupKind() == (corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind()) {
		return nil
	}
	return q.evaluator.Evaluate(a)
}

// quotaAccess reads quotas and writes charges to them. The quota controller and other API servers
// write the same quotas. If a charge conflicts with another write, it is added to the newer version
// of the quota, provided that this still has room. Otherwise, many creates would fail with
// conflicts.
type quotaAccess struct {
	client kubernetes.Interface
	lister corelisters.ResourceQuotaLister
	synced func() bool

	// newer has the quotas that this server has recently read from the store or written, each in its
	// newest version, by namespace and name. The lister may still have an older version.
	newer *lru.Cache
}

// GetQuotas implements resourcequota.QuotaAccessor. It returns the newest known versions.
func (q *quotaAccess) GetQuotas(namespace string) ([]corev1.ResourceQuota, error) {
	items, err := q.lister.ResourceQuotas(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("error resolving quota: %w", err)
	}
	if len(items) == 0 && !q.synced() {
		list, err := q.client.CoreV1().ResourceQuotas(namespace).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}
	out := make([]corev1.ResourceQuota, 0, len(items))
	for _, item := range items {
		out = append(out, *q.newest(item).DeepCopy())
	}
	return out, nil
}

// newest returns the newest known version of a quota, which may be newer than listed.
func (q *quotaAccess) newest(listed *corev1.ResourceQuota) *corev1.ResourceQuota {
	name := types.NamespacedName{Namespace: listed.Namespace, Name: listed.Name}
	kept, ok := q.newer.Get(name)
	newer, isQuota := kept.(*corev1.ResourceQuota)
	if !ok || !isQuota {
		return listed
	}
	if order, err := resourceversion.CompareResourceVersion(listed.ResourceVersion,
		newer.ResourceVersion); err != nil || order >= 0 {
		return listed
	}
	return newer
}

// keep stores a version in newer, because the lister may not have it yet.
func (q *quotaAccess) keep(newer *corev1.ResourceQuota) {
	q.newer.Add(types.NamespacedName{Namespace: newer.Namespace, Name: newer.Name}, newer)
}

// UpdateQuotaStatus implements resourcequota.QuotaAccessor. charged is a quota that GetQuotas
// returned, to which the evaluator has added the charge.
func (q *quotaAccess) UpdateQuotaStatus(charged *corev1.ResourceQuota) error {
	client := q.client.CoreV1().ResourceQuotas(charged.Namespace)
	base := q.known(charged)
	for attempt := 1; ; attempt++ {
		written, err := client.UpdateStatus(context.Background(), charged, metav1.UpdateOptions{})
		if err == nil {
			q.keep(written)
			return nil
		}
		if !apierrors.IsConflict(err) {
			return err
		}
		live, liveErr := client.Get(context.Background(), charged.Name, metav1.GetOptions{})
		if liveErr != nil {
			return err
		}
		q.keep(live)
		next, fits := recharge(base, charged, live)
		if !fits || attempt == chargeAttempts {
			return err // the quota evaluator then checks all waiting writes again, with the newest quotas
		}
		base, charged = live, next
	}
}

// known returns the quota to which the charge was added. It returns nil if a newer version is known
// now.
func (q *quotaAccess) known(charged *corev1.ResourceQuota) *corev1.ResourceQuota {
	listed, err := q.lister.ResourceQuotas(charged.Namespace).Get(charged.Name)
	if err != nil {
		return nil
	}
	if base := q.newest(listed); base.ResourceVersion == charged.ResourceVersion {
		return base
	}
	return nil
}

// recharge returns live with the charge, which is the difference in usage between base and charged.
// It returns false if live has other limits than base, or no room for the charge.
func recharge(base, charged, live *corev1.ResourceQuota) (*corev1.ResourceQuota, bool) {
	if base == nil || live.UID != base.UID || !quotav1.Equals(live.Status.Hard, base.Status.Hard) {
		return nil, false
	}
	charge := quotav1.RemoveZeros(quotav1.Subtract(charged.Status.Used, base.Status.Used))
	next := live.DeepCopy()
	next.Status.Used = quotav1.Add(live.Status.Used, charge)
	fits, _ := quotav1.LessThanOrEqual(quotav1.Mask(next.Status.Used, quotav1.ResourceNames(charge)), next.Status.Hard)
	return next, fits
}

// quotaDevices returns sources that read pods and claims from the server. They are rarely needed,
// and informers for all pods would need much memory.
func quotaDevices(deps Deps) quota.DeviceSources {
	return quota.DeviceSources{
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
