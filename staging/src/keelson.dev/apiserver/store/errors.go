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

// Texts of Kubernetes' errors. Clients show them to users, and some clients compare them.
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

// ErrCondition is returned by Create if one of its conditions does not hold. Nothing is stored, and
// the caller may go on using the object.
var ErrCondition = errors.New("a condition of the write does not hold")

// ErrEncrypted is the error of a Codec for bytes that are encrypted.
var ErrEncrypted = errors.New("identity transformer tried to read encrypted data")

// UnreadableError is the error for an object whose stored bytes cannot be decrypted or decoded. Key is relative
// to the keys of its resource, and Revision is that of the object's last write.
type UnreadableError struct {
	Key      string
	Revision int64
	Err      error
}

// Error returns Kubernetes' text.
func (u *UnreadableError) Error() string {
	if u.Encrypted() {
		return "data from the storage is not transformable revision=0: " + u.Err.Error()
	}
	return fmt.Sprintf("object not decodable revision=%d: %v", u.Revision, u.Err)
}

func (u *UnreadableError) Unwrap() error { return u.Err }

// Encrypted reports whether the stored bytes cannot be decrypted.
func (u *UnreadableError) Encrypted() bool {
	return errors.Is(u.Err, ErrEncrypted) || errors.Is(u.Err, kv.ErrUnreadable)
}

// ErrNotCorrupt is returned by DeleteCorrupt for an object that can be read.
var ErrNotCorrupt = errors.New("unsafe deletion is not allowed because the object is decodable from storage")

// tooLarge returns the error of a read whose revision has not been reached in time. The client may
// retry after one second.
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

// tooOld returns the error of a watch after revision rev that has missed events. The text names
// oldest, the earliest revision after which a watch can start, unless the resource's objects
// expire, as in Kubernetes.
func (c *cache) tooOld(rev, oldest int64) error {
	if c.expires {
		return apierrors.NewResourceExpired(msgWatchExpired)
	}
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", rev, oldest))
}

// translate converts errors of the key-value store to API errors if clients can handle them. It
// returns other errors unchanged: as in Kubernetes, clients see their text with status 500 and no
// reason.
func translate(ctx context.Context, err error) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, kv.ErrCompacted):
		return apierrors.NewResourceExpired(msgListExpired)
	}
	return err
}

// parseRevision parses a resourceVersion; "" and "0" are 0. Its error is not an API error: as in
// Kubernetes, reads turn it into BadRequest and watches do not.
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

// uncached adapts an error about a revision for resources whose objects expire. Kubernetes does not
// read these from its watch cache, so its errors differ: an invalid revision is a BadRequest, and
// the error for a future revision has no retry delay.
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
