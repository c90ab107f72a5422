// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/negotiate"
	"keelson.dev/apiserver/store"
)

// StatusOf returns the Status in err. For an error without a Status, it returns one with code 500,
// or a timeout if err is context.DeadlineExceeded.
func StatusOf(err error) *metav1.Status {
	status := metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonUnknown, Message: err.Error()}
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		status = known.Status()
	} else if u := (*store.UnreadableError)(nil); errors.As(err, &u) && u.Encrypted() {
		status = apierrors.NewInternalError(err).ErrStatus
	} else if errors.Is(err, context.DeadlineExceeded) {
		status = apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).ErrStatus
	}
	if status.Status == "" {
		status.Status = metav1.StatusFailure
	}
	if status.Code == 0 {
		status.Code = http.StatusInternalServerError
		if status.Status == metav1.StatusSuccess {
			status.Code = http.StatusOK
		}
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status
}

// WriteError sends err as a Status, in the content type that r accepts. If the deadline of r has
// passed, it sends a timeout instead of err.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		writeTimeIsOver(w, r)
		return
	}
	status := StatusOf(err)
	code := int(status.Code)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	if code == http.StatusNoContent {
		w.WriteHeader(code)
		return
	}
	out, negotiateErr := negotiate.Accept(r, negotiate.Standard())
	if negotiateErr != nil {
		// The client accepts only forms that a Status does not have. Then the audit event gets only
		// the code, not the Status.
		out = negotiate.Output{MediaType: negotiate.JSON, Pretty: true}
	} else {
		auditStatus(r, status)
	}
	writeStatus(w, r, out, code, status)
}

// writeTimeIsOver sends the same response as Kubernetes' timeout handler. That handler does not
// look at the request, so the Status has no kind and the content type is text/plain. Clients treat
// it like a gateway's response.
func writeTimeIsOver(w http.ResponseWriter, r *http.Request) {
	status := apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).ErrStatus
	logged := status
	auditStatus(r, &logged)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusGatewayTimeout)
	_ = json.NewEncoder(w).Encode(status) //nolint:errchkjson // fails only if the client has closed the connection
}

// errNotFound returns the error for a path that names no resource.
func errNotFound() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	}}
}

// errMethod returns the error for a verb that a resource does not support.
func errMethod() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
		Message: "the server does not allow this method on the requested resource", Details: &metav1.StatusDetails{},
	}}
}
