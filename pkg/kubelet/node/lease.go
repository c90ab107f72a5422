// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// renewals is how many times the Lease is renewed during its duration.
const renewals = 4

// renew renews the Lease until ctx ends.
func (n *Node) renew(ctx context.Context) {
	var lease *coordinationv1.Lease
	t := n.cfg.Clock.NewTicker(n.cfg.LeaseDuration / renewals)
	defer t.Stop()
	for {
		for {
			var err error
			if lease, err = n.renewOnce(ctx, lease); err == nil || ctx.Err() != nil {
				break
			}
			n.cfg.Log.Warn("Failed to renew the node's Lease", "err", err)
			lease = nil // read the Lease again, because the known version may be outdated
			n.pause(ctx, retryPeriod)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C():
		}
	}
}

// renewOnce writes the Lease. The argument known is its last version. If it is nil, renewOnce reads
// the Lease first.
func (n *Node) renewOnce(ctx context.Context, known *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.LeaseDuration/renewals)
	defer cancel()
	leases := n.id.Client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	if known == nil {
		var err error
		known, err = leases.Get(ctx, n.id.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			made, err := leases.Create(ctx, n.lease(&coordinationv1.Lease{}), metav1.CreateOptions{})
			if err != nil {
				return nil, fmt.Errorf("create lease: %w", err)
			}
			return made, nil
		}
		if err != nil {
			return nil, fmt.Errorf("get lease: %w", err)
		}
	}
	got, err := leases.Update(ctx, n.lease(known), metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("update lease: %w", err)
	}
	return got, nil
}

func (n *Node) lease(known *coordinationv1.Lease) *coordinationv1.Lease {
	l := known.DeepCopy()
	l.Name, l.Namespace = n.id.Name, v1.NamespaceNodeLease
	duration := int32(n.cfg.LeaseDuration / time.Second)
	now := metav1.NewMicroTime(n.cfg.Clock.Now())
	holder := n.id.Name
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &holder, &duration, &now
	if node := n.Current(); len(l.OwnerReferences) == 0 && node != nil {
		l.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
		}}
	}
	return l
}
