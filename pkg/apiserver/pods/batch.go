// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

const (
	// maxBatch bounds the body of a batch.
	maxBatch = 1 << 20
	// batchWorkers bounds the bindings of one batch that are under way at a time.
	// The store writes them to disk together.
	batchWorkers = 32
)

// Batch answers scheduling.keelson.dev BindingBatches.
type Batch struct {
	Binder *Binder
	// Events is the registry of events, once the server has it.
	Events func() *registry.Registry
	// Admission judges each binding as it would one that came alone.
	Admission interface {
		admission.MutationInterface
		admission.ValidationInterface
	}
	Scheme *runtime.Scheme
}

// ServeHTTP implements http.Handler. The request has passed authorization.
func (b *Batch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		writeStatus(w, apierrors.NewMethodNotSupported(schema.GroupResource{Group: v1alpha1.Group, Resource: "bindingbatches"}, r.Method))
		return
	}
	var batch v1alpha1.BindingBatch
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBatch)).Decode(&batch); err != nil {
		writeStatus(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	if n := len(batch.Bindings); n > v1alpha1.MaxBindings {
		writeStatus(w, apierrors.NewBadRequest(fmt.Sprintf("%d bindings, at most %d are allowed", n, v1alpha1.MaxBindings)))
		return
	}
	writeJSON(w, http.StatusCreated, v1alpha1.BindingBatchResult{
		APIVersion: v1alpha1.Group + "/" + v1alpha1.Version, Kind: "BindingBatch", Results: b.bind(r.Context(), &batch),
	})
}

func (b *Batch) bind(ctx context.Context, batch *v1alpha1.BindingBatch) []v1alpha1.Result {
	results := make([]v1alpha1.Result, len(batch.Bindings))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(batchWorkers, len(results)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(results); i = next.Add(1) - 1 {
				results[i] = b.bindOne(ctx, batch, &batch.Bindings[i])
			}
		})
	}
	workers.Wait()
	return results
}

func (b *Batch) bindOne(ctx context.Context, batch *v1alpha1.BindingBatch, in *v1alpha1.Binding) v1alpha1.Result {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: in.Namespace, Name: in.Name, UID: in.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: in.Node},
	}
	err := b.admit(ctx, binding)
	if err == nil {
		err = b.Binder.bind(ctx, in.Namespace, binding, false)
	}
	if err != nil {
		status := statusOf(err)
		return v1alpha1.Result{Code: status.Code, Reason: string(status.Reason), Message: status.Message}
	}
	if batch.ReportingController != "" {
		// As for any client that writes events: one that cannot be written is lost.
		_, _ = b.Events().Create(ctx, in.Namespace, b.event(batch, in), metav1.CreateOptions{})
	}
	return v1alpha1.Result{Code: http.StatusCreated}
}

func (b *Batch) admit(ctx context.Context, binding *corev1.Binding) error {
	if errs := validateBinding(binding); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Binding"}, binding.Name, errs)
	}
	if !b.Admission.Handles(admission.Create) {
		return nil
	}
	user, _ := request.UserFrom(ctx)
	attrs := admission.NewAttributesRecord(binding, nil, corev1.SchemeGroupVersion.WithKind("Binding"), binding.Namespace, binding.Name,
		corev1.SchemeGroupVersion.WithResource("pods"), "binding", admission.Create, &metav1.CreateOptions{}, false, user)
	objects := registry.SchemeInterfaces(b.Scheme)
	if err := b.Admission.Admit(ctx, attrs, objects); err != nil {
		return err // the client is told as it is
	}
	return b.Admission.Validate(ctx, attrs, objects) // the client is told as it is
}

// event is the one that Kubernetes' scheduler writes when it has bound a pod.
func (b *Batch) event(batch *v1alpha1.BindingBatch, in *v1alpha1.Binding) resource.Object {
	now := b.Binder.Clock.Now()
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: in.Namespace, Name: in.Name + "." + strconv.FormatInt(now.UnixNano(), 16)},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: batch.ReportingController, ReportingInstance: batch.ReportingInstance,
		Type: corev1.EventTypeNormal, Reason: "Scheduled", Action: "Binding",
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: in.Namespace, Name: in.Name, UID: in.UID},
		Note:      fmt.Sprintf("Successfully assigned %s/%s to %s", in.Namespace, in.Name, in.Node),
	}
}

func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		return known.Status()
	}
	return apierrors.NewInternalError(err).ErrStatus
}

func writeStatus(w http.ResponseWriter, err *apierrors.StatusError) {
	writeJSON(w, int(err.ErrStatus.Code), err.ErrStatus)
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client is gone, or it is not
}
