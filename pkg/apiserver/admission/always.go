// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"

	"k8s.io/apiserver/pkg/admission"
)

// errDenied is told in Kubernetes' words.
var errDenied = errors.New("admission control is denying all modifications")

// newAlwaysAdmit refuses nothing, as if it were not there.
func newAlwaysAdmit(deps Deps) (admission.Interface, error) {
	deps.Log.Warn("Admission plugin AlwaysAdmit is deprecated: it does nothing")
	return newIdle(deps)
}

// newAlwaysDeny refuses everything, the server's own writes included.
func newAlwaysDeny(deps Deps) (admission.Interface, error) {
	deps.Log.Warn("Admission plugin AlwaysDeny is deprecated")
	return alwaysDeny{}, nil
}

type alwaysDeny struct{}

// Handles is true of every operation.
func (alwaysDeny) Handles(admission.Operation) bool { return true }

// Admit refuses.
func (alwaysDeny) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return admission.NewForbidden(a, errDenied)
}

// Validate refuses.
func (alwaysDeny) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return admission.NewForbidden(a, errDenied)
}

// newIdle is a plugin that lets everything pass: what Kubernetes' plugins do whose
// features are off.
func newIdle(Deps) (admission.Interface, error) { return admission.NewHandler(), nil }
