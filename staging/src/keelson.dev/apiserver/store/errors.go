// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/store/kv"
)

// The texts are Kubernetes': clients show them to people, and some match them.
const (
	msgListExpired     = "The resourceVersion for the provided list is too old."
	msgContinueExpired = "The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response " +
		"to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent " +
		"list - objects that were created, modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list."
	msgWatchExpired = "The resourceVersion for the provided watch is too old."
	msgNotReady     = "storage is (re)initializing"
)

// ErrCondition says that a condition of a Create does not hold. Nothing is stored, and the
// object is still the caller's.
var ErrCondition = errors.New("a condition of the write does not hold")

// tooLarge says that rev has not arrived in time; the client may try again in a second.
func tooLarge(rev, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", rev, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}

func isTooLarge(err error) bool {
	return apierrors.IsTimeout(err) && apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// tooOld says that events after rev are no longer all there; oldest is the
// earliest revision a watch could start from. Where Kubernetes has no watch cache it
// does not tell.
func (c *cache) tooOld(rev, oldest int64) error {
	if c.expires {
		return apierrors.NewResourceExpired(msgWatchExpired)
	}
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", rev, oldest))
}

// translate makes an API error of an error of the key-value store that clients know
// what to do about. Any other stays what it is: clients see its bare words, with
// status 500 and no reason, as in Kubernetes.
func translate(ctx context.Context, err error) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, kv.ErrCompacted):
		return apierrors.NewResourceExpired(msgListExpired)
	}
	return err
}

// parseRevision reads a resourceVersion; "" and "0" are 0. Its error is not an
// API error: as in Kubernetes, reads make a bad request of it and watches do not.
func parseRevision(rv string) (int64, error) {
	if rv == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0, field.Invalid(field.NewPath("resourceVersion"), rv, err.Error())
	}
	return int64(min(n, math.MaxInt64)), nil
}

func formatRevision(rev int64) string { return strconv.FormatInt(rev, 10) }

// uncached words an error about a revision as Kubernetes does for objects that end
// by themselves, which it reads past its watch cache: what is no revision is the
// client's fault, and what is too new is nothing to come back for.
func (s *Store) uncached(err error) error {
	if s.TTL == nil {
		return err
	}
	if isTooLarge(err) {
		var status *apierrors.StatusError
		if errors.As(err, &status) {
			status.ErrStatus.Details.RetryAfterSeconds = 0
		}
		return err
	}
	var invalid *field.Error
	if errors.As(err, &invalid) {
		return badRevision(err)
	}
	return err
}

func badRevision(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
}
