// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package perturb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	errDead = errors.New("the process was killed")
	errCut  = fmt.Errorf("connection broke: %w", io.ErrUnexpectedEOF)
)

// transport injects faults into the requests of one process to the API server.
type transport struct {
	base   http.RoundTripper
	faults *Faults
	p      *process
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.p.dead.Load() {
		return nil, errDead
	}
	query := r.URL.Query()
	what := r.Method + " " + r.URL.Path
	switch {
	case r.Method != http.MethodGet:
		return t.write(r, what)
	case query.Get("watch") != "":
		return t.watch(r, query)
	case query.Get("resourceVersion") == "0":
		if rv := t.p.cell.oldRevision(t.faults, what); rv != "" {
			query.Set("resourceVersion", rv)
			query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
			r = r.Clone(r.Context())
			r.URL.RawQuery = query.Encode()
		}
	}
	if resp, err, failed := t.refuse(r, what); failed {
		return resp, err
	}
	return t.base.RoundTrip(r)
}

// write handles a request that may change an object.
func (t *transport) write(r *http.Request, what string) (*http.Response, error) {
	t.p.writes.Add(1)
	if t.faults.hit(crash, "before "+what) {
		return nil, t.p.die()
	}
	if resp, err, failed := t.refuse(r, what); failed {
		return resp, err
	}
	if (r.Method == http.MethodPut || r.Method == http.MethodPatch) && t.faults.hit(conflict, what) {
		drain(r)
		return status(r, http.StatusConflict, metav1.StatusReasonConflict,
			"the object has been modified; please apply your changes to the latest version and try again"), nil
	}
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	if t.p.trace != nil {
		t.p.trace(fmt.Sprintf("%s: %d", what, resp.StatusCode))
	}
	if t.faults.hit(crash, "after "+what) {
		_ = resp.Body.Close() // the process is dead and does not read the response
		return nil, t.p.die()
	}
	if hit, x := t.faults.draw(lost, what); hit {
		_ = resp.Body.Close() // the response is lost
		if x%2 == 0 {
			return nil, errCut
		}
		return status(r, http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
			"request did not complete within the allotted timeout"), nil
	}
	return resp, nil
}

// refuse may make a request fail in one of several ways without sending it. The last result reports
// whether it fails; then one of the first two results is the response or the error.
func (t *transport) refuse(r *http.Request, what string) (*http.Response, error, bool) {
	hit, x := t.faults.draw(refused, what)
	if !hit {
		return nil, nil, false
	}
	drain(r)
	switch x % 4 {
	case 0:
		return nil, errCut, true
	case 1:
		resp := status(r, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"too many requests, please try again later")
		resp.Header.Set("Retry-After", "1")
		return resp, nil, true
	case 2:
		return status(r, http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
			"request did not complete within the allotted timeout"), nil, true
	default:
		return status(r, http.StatusInternalServerError, metav1.StatusReasonInternalError,
			"an error on the server"), nil, true
	}
}

// watch opens a watch. Depending on the faults, its events may be delayed or duplicated, and it may
// end at any time.
func (t *transport) watch(r *http.Request, query url.Values) (*http.Response, error) {
	what := r.URL.Path
	if query.Get("sendInitialEvents") == "true" && t.faults.hit(old, what) {
		// After this error the client lists the objects instead, and may get an old list.
		return status(r, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
			"sendInitialEvents is forbidden for watch"), nil
	}
	if query.Get("resourceVersion") != "" && query.Get("sendInitialEvents") == "" && t.faults.hit(gone, what) {
		return status(r, http.StatusGone, metav1.StatusReasonExpired, "too old resource version"), nil
	}
	if resp, err, failed := t.refuse(r, what); failed {
		return resp, err
	}
	resp, err := t.base.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	resp.Body = newStream(r.Context(), t.faults, what, resp.Header.Get("Content-Type"), resp.Body)
	return resp, nil
}

func drain(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // cannot fail: the body is in memory
	}
}

// status returns an error response whose body is a Status.
func status(r *http.Request, code int, reason metav1.StatusReason, message string) *http.Response {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Reason: reason, Code: int32(code), Message: strings.TrimSpace(message),
	})
	if err != nil {
		panic("perturb: status does not encode: " + err.Error()) // cannot happen: plain data can always be encoded
	}
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/2.0", ProtoMajor: 2, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}
}
