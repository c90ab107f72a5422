// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/api/scheduling/v1alpha1"
)

// batches sends decisions about many pods to Keelson's API server in one request. Other API servers
// do not support such batches.
type batches struct {
	client   kubernetes.Interface
	instance string // reporting instance in events
	absent   atomic.Bool
}

func newBatches(client kubernetes.Interface, identity string) *batches {
	return &batches{client: client, instance: instance(identity)}
}

// post sends a batch. The result served is false if the server does not support batches, or does not
// allow this scheduler to send them.
func (b *batches) post(ctx context.Context, path string, body, answer any) (served bool, err error) {
	if b.absent.Load() {
		return false, nil
	}
	c, ok := b.client.CoreV1().RESTClient().(*rest.RESTClient)
	if !ok || c == nil {
		b.absent.Store(true)
		return false, nil
	}
	enc, err := json.Marshal(body)
	if err != nil {
		return true, fmt.Errorf("batch: %w", err)
	}
	raw, err := c.Post().AbsPath(path).SetHeader("Content-Type", "application/json").
		SetHeader("Accept", "application/json").Body(enc).DoRaw(ctx)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		b.absent.Store(true)
		return false, nil
	}
	if err != nil {
		return true, err // the same error as for a request about one pod
	}
	return true, json.Unmarshal(raw, answer)
}

// answered converts the result for one pod of a batch to the error that a request for this pod
// alone would have returned. It returns nil on success.
func answered(r *v1alpha1.Result) error {
	if r.Code < http.StatusBadRequest {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: r.Code, Reason: metav1.StatusReason(r.Reason), Message: r.Message,
	}}
}

// instance returns the value of reportingInstance in events: the identity, or the host's name if it
// is empty.
func instance(identity string) string {
	if identity != "" {
		return identity
	}
	host, err := os.Hostname()
	if err != nil {
		return "unknown" // used only in events
	}
	return host
}
