// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"

	"k8s.io/apiserver/pkg/admission"
)

// errDenied is the error of AlwaysDeny, with Kubernetes' message.
var errDenied = errors.New("admission control is denying all modifications")

// newAlwaysAdmit returns the plugin AlwaysAdmit, which admits all requests.
func newAlwaysAdmit(deps Deps) (admission.Interface, error) {
	deps.Log.Warn("Admission plugin AlwaysAdmit is deprecated: it does nothing")
	return newIdle(deps)
}

// newAlwaysDeny returns the plugin AlwaysDeny, which rejects all requests, including the server's
// own.
func newAlwaysDeny(deps Deps) (admission.Interface, error) {
	deps.Log.Warn("Admission plugin AlwaysDeny is deprecated")
	return alwaysDeny{}, nil
}

type alwaysDeny struct{}

// Handles returns true.
func (alwaysDeny) Handles(admission.Operation) bool { return true }

// Admit rejects the write.
func (alwaysDeny) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return admission.NewForbidden(a, errDenied)
}

// Validate rejects the write.
func (alwaysDeny) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return admission.NewForbidden(a, errDenied)
}

// newIdle returns a plugin that admits all requests. It replaces plugins of Kubernetes that do
// nothing because their features are off.
func newIdle(Deps) (admission.Interface, error) { return admission.NewHandler(), nil }
