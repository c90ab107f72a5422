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
)

// StatusOf returns err as a Status: its own, or an internal error's.
func StatusOf(err error) *metav1.Status {
	status := metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonUnknown, Message: err.Error()}
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		status = known.Status()
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

// WriteError answers r with err as a Status, in the content type r asks for; if the
// time that r has is over, whatever err is, with that.
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
		// Of an error in a form that was not asked for the code alone is noted.
		out = negotiate.Output{MediaType: negotiate.JSON, Pretty: true}
	} else {
		auditStatus(r, status)
	}
	writeStatus(w, r, out, code, status)
}

// writeTimeIsOver answers as Kubernetes' handler of timeouts does, which knows nothing of the
// request: the Status has no kind and no content type. Clients take it for a gateway's.
func writeTimeIsOver(w http.ResponseWriter, r *http.Request) {
	status := apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).ErrStatus
	told := status
	auditStatus(r, &told)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusGatewayTimeout)
	_ = json.NewEncoder(w).Encode(status) // who does not read it has gone
}

// errNotFound is the answer to a path that names no resource.
func errNotFound() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	}}
}

// errMethod is the answer to a verb that a resource does not have.
func errMethod() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
		Message: "the server does not allow this method on the requested resource", Details: &metav1.StatusDetails{},
	}}
}
