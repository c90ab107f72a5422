// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

// maxUnreadable is the maximum number of objects that an error names.
const maxUnreadable = 100

// tooManyUnreadable is the message of the last cause of an error that names maxUnreadable objects.
const tooManyUnreadable = "too many errors, the list is truncated"

// corrupt returns the text of Kubernetes' error for an object that cannot be read. root is the prefix
// of all keys in the store.
func corrupt(root string, row *resource.Row, u *store.UnreadableError) string {
	return fmt.Sprintf("StorageError: corrupt object, Code: 7, Key: %s/%s/%s, ResourceVersion: 0, AdditionalErrorMsg: %v",
		root, row.StoragePrefix, u.Key, u)
}

// unreadable returns the error for a get or a delete that has failed with err. It differs from err only
// if the object cannot be read. As in Kubernetes, the key in the error lacks the prefix of all keys.
func unreadable(row *resource.Row, err error) error {
	if u := (*store.UnreadableError)(nil); errors.As(err, &u) {
		return apierrors.NewInternalError(errors.New(corrupt("", row, u)))
	}
	return err
}

// unreadableList returns the error for a list. It differs from err only if an object cannot be read, and
// then names up to maxUnreadable such objects of the page.
func unreadableList(t *target, page *store.Page, err error) error {
	row, root := t.row, t.registry.KeyRoot()
	first := (*store.UnreadableError)(nil)
	if !errors.As(err, &first) {
		return err
	}
	found := []*store.UnreadableError{}
	for _, rec := range page.Records {
		_, err := rec.Object()
		if u := (*store.UnreadableError)(nil); errors.As(err, &u) {
			found = append(found, u)
		}
		if len(found) == maxUnreadable {
			break
		}
	}
	if len(found) == 0 {
		found = append(found, first)
	}
	var causes []metav1.StatusCause
	for _, u := range found {
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeUnexpectedServerResponse,
			Field: root + "/" + row.StoragePrefix + "/" + u.Key, Message: corrupt(root, row, u)})
	}
	if len(found) == maxUnreadable {
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeTooMany, Message: tooManyUnreadable})
	}
	message := "failed to read one or more " + row.GroupResource().String() + " from the storage: " + causes[0].Message
	if more := len(found) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonStoreReadError,
		Message: message,
		Details: &metav1.StatusDetails{Group: row.Group, Kind: row.Resource, Name: "list", Causes: causes},
	}}
}
