// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Coordinated leader election is off by default: leases do not take its fields.

func prepareLeaseCreate(_ context.Context, l *coordinationv1.Lease) {
	l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil
}

func prepareLeaseUpdate(_ context.Context, l, old *coordinationv1.Lease) {
	if old.Spec.Strategy == nil {
		l.Spec.Strategy = nil
	}
	if old.Spec.PreferredHolder == nil {
		l.Spec.PreferredHolder = nil
	}
}
