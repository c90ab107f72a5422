// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// mapper counts how often it was reset.
type mapper struct {
	meta.RESTMapper
	resets int
}

func (m *mapper) Reset() { m.resets++ }

// TestServed checks that the error for a path that is not served is not treated as a missing
// object, and resets the mapper.
func TestServed(t *testing.T) {
	gr := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	unserved := &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{},
	}}
	for name, c := range map[string]struct {
		err    error
		absent bool
		resets int
	}{
		"no error":        {nil, false, 0},
		"object absent":   {apierrors.NewNotFound(gr, "w"), true, 0},
		"conflict":        {apierrors.NewConflict(gr, "w", nil), false, 0},
		"path not served": {unserved, false, 1},
		"page not found": {apierrors.NewGenericServerResponse(http.StatusNotFound, "get", gr, "w",
			"404 page not found", 0, true), false, 1},
		"connection not made":    {errors.New("refused"), false, 0},
		"object absent, wrapped": {errors.Join(apierrors.NewNotFound(gr, "w")), true, 0},
	} {
		m := &mapper{}
		gc := &Controller{Deps: controller.Deps{Mapper: m}}
		got := gc.served(c.err)
		if apierrors.IsNotFound(got) != c.absent || (got == nil) != (c.err == nil) || m.resets != c.resets {
			t.Errorf("%s: %v, %d resets", name, got, m.resets)
		}
	}
}
