// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxAnswer is the maximum size of an answer in bytes, in addition to four times the size of the
	// request. The patch of the largest object that the server accepts may have half this size.
	maxAnswer = 8 << 20
	// patience is how long a client must have waited for a webhook before its disconnect counts as a
	// failure of the webhook.
	patience = 5 * time.Second
	// probeTime is the timeout of a probe: a review that is sent to a failing webhook to find out
	// whether it answers again. It equals the maximum timeout of a webhook.
	probeTime = 30 * time.Second
)

// caller is a transport that sends reviews to the webhooks of one service or host.
type caller struct {
	book      *Book
	namespace string // namespace of the service; empty for a host
	next      http.RoundTripper
}

// WrappedRoundTripper returns the inner transport. Code that needs its TLS settings calls it.
func (c *caller) WrappedRoundTripper() http.RoundTripper { return c.next }

// RoundTrip calls the webhook. If the webhook is failing and the request has an excuse (a reason
// why it may skip a failing webhook), RoundTrip instead returns an answer that allows the request.
func (c *caller) RoundTrip(r *http.Request) (*http.Response, error) {
	at := r.URL.Scheme + "://" + r.URL.Host + r.URL.Path
	health := c.book.circuit(at)
	of, ok := r.Context().Value(reviewKey{}).(*review)
	if !ok || !health.isOpen() {
		return c.call(r, health, at, of)
	}
	why := excused(of.attributes, c.namespace)
	if why == "" {
		return c.call(r, health, at, of)
	}
	if health.pass(c.book.clock.Now()) {
		c.probe(r, health, at)
	}
	return passOver(r, why)
}

// call sends a review and records the outcome in the endpoint's health. The argument of is the API
// request for which the webhook is called, or nil if it is unknown.
func (c *caller) call(r *http.Request, health *circuit, at string, of *review) (*http.Response, error) {
	start := c.book.clock.Now()
	resp, err := c.next.RoundTrip(r)
	now := c.book.clock.Now()
	took := now.Sub(start)
	reason := ""
	switch {
	case err == nil:
		reason = wrong(r, resp)
	case of != nil && of.ctx.Err() != nil && took < patience, errors.Is(r.Context().Err(), context.Canceled) &&
		took < patience:
		health.abandoned()
		return nil, err
	default:
		reason = err.Error()
	}
	if reason == "" {
		if health.answered(now, took) {
			c.book.log.Info("Call to a webhook succeeded again", "url", at, "duration", took)
		}
		return resp, nil
	}
	if health.failed(now, took, reason) {
		c.book.log.Error("Webhook is failing; vital requests of system components, such as leases, skip it",
			"url", at, "err", reason)
	}
	return resp, err
}

// probe sends a review to a failing webhook in the background, to detect whether the webhook
// answers again. The request of the review has already been admitted.
func (c *caller) probe(r *http.Request, health *circuit, at string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), probeTime)
	again := r.Clone(ctx)
	if r.GetBody == nil {
		cancel()
		health.abandoned()
		return
	}
	body, err := r.GetBody()
	if err != nil {
		cancel()
		health.abandoned()
		return
	}
	again.Body = body
	go func() {
		defer cancel()
		_, _ = c.call(again, health, at, nil)
	}()
}

// buffer reads the whole answer into memory. It returns an error if the answer is incomplete or
// longer than limit bytes.
func buffer(resp *http.Response, limit int64) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	_ = resp.Body.Close()
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if int64(len(data)) > limit {
		return fmt.Errorf("answer is longer than %d bytes", limit)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	return nil
}

// wrong reads an answer, whose size the transport of Bounded limits. It returns what is wrong with
// the answer, or "" if it is a valid review.
func wrong(r *http.Request, resp *http.Response) string {
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return "answered with status " + strconv.Itoa(resp.StatusCode)
	}
	var answer struct {
		APIVersion, Kind string
		Response         *struct{ UID types.UID }
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return "answer is no review: " + err.Error()
	}
	switch asked, err := headOf(r); {
	case answer.Response == nil:
		return "answer has no response"
	case err != nil || asked.apiVersion != admissionv1.SchemeGroupVersion.String():
		return "" // in version v1beta1, answers may lack these fields
	case answer.APIVersion != asked.apiVersion || answer.Kind != "AdmissionReview":
		return fmt.Sprintf("answer is of kind %s %s", answer.APIVersion, answer.Kind)
	case answer.Response.UID != asked.uid:
		return "answer is to another request"
	}
	return ""
}

// head has the API version of a review and the UID of its request.
type head struct {
	apiVersion string
	uid        types.UID
}

// headOf decodes only the head of a review, because the objects after it may be large.
func headOf(r *http.Request) (h head, err error) {
	if r.GetBody == nil {
		return h, errors.New("body of the review cannot be read a second time")
	}
	body, err := r.GetBody()
	if err != nil {
		return h, err
	}
	defer body.Close()
	d, key := json.NewDecoder(body), ""
	for h.uid == "" || h.apiVersion == "" {
		t, err := d.Token()
		if err != nil {
			return h, fmt.Errorf("head of review: %w", err)
		}
		text, ok := t.(string)
		switch {
		case !ok:
			key = ""
		case key == "apiVersion":
			h.apiVersion, key = text, ""
		case key == "uid":
			h.uid, key = types.UID(text), ""
		case key == "kind":
			key = ""
		default:
			key = text
		}
	}
	return h, nil
}

// passOver returns an answer in place of a failing webhook. The answer allows the request, with an
// audit annotation and a warning that the webhook was skipped.
func passOver(r *http.Request, why excuse) (*http.Response, error) {
	asked, err := headOf(r)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": asked.apiVersion, "kind": "AdmissionReview",
		"response": map[string]any{
			"uid": asked.uid, "allowed": true,
			"auditAnnotations": map[string]string{"passed-over": string(why)},
			"warnings":         []string{"an admission webhook is failing and was passed over: " + string(why)},
		},
	})
	if err != nil {
		return nil, err
	}
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)), Request: r,
	}, nil
}

// Bounded returns a transport that limits the size of answers, see maxAnswer.
func Bounded(next http.RoundTripper) http.RoundTripper { return bounded{next} }

type bounded struct{ http.RoundTripper }

// WrappedRoundTripper returns the inner transport. Code that needs its TLS settings calls it.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }

// RoundTrip sends the request and reads the whole answer. It returns an error if the answer is too
// large.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		err = buffer(resp, maxAnswer+4*max(r.ContentLength, 0))
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}
