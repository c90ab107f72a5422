// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"bytes"
	"cmp"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/keelson/pkg/apiserver/filters"
)

const (
	// maxBatch is the maximum size, in bytes, of the body of a batch.
	maxBatch = 4 << 20
	// batchWorkers is the maximum number of items of one batch that are processed concurrently. The
	// store combines their writes.
	batchWorkers = 32
)

// Batch handles BindingBatches and VerdictBatches of scheduling.keelson.dev, by which a scheduler
// sends many bindings or results of scheduling in one request. Each item is handled as if it were a
// request of its own, see type part.
type Batch struct {
	Binder *Binder
	// Events returns the registry of events. It can be called only after the server has started.
	Events func() *registry.Registry
	// Admission admits each binding.
	Admission interface {
		admission.MutationInterface
		admission.ValidationInterface
	}
	Scheme *runtime.Scheme
	// Authorizer authorizes each part.
	Authorizer authorizer.UnconditionalAuthorizer
	// Audit records an audit event for each part. It is nil if auditing is off.
	Audit *filters.Audit
}

var errNotRecorded = errors.New("failed to store audit event")

// Bindings handles a BindingBatch. The user has been authorized to send it. The right to bind each
// pod is checked here.
func (b *Batch) Bindings(w http.ResponseWriter, r *http.Request, req *resource.Request) error {
	var batch v1alpha1.BindingBatch
	if err := accept(w, r, req, &batch); err != nil {
		return err
	}
	limit := v1alpha1.MaxBindings
	if batch.AllOrNothing {
		limit = v1alpha1.MaxGang
	}
	if err := bounded(len(batch.Bindings), limit, "bindings"); err != nil {
		return err
	}
	results, from := make([]v1alpha1.Result, len(batch.Bindings)), senderOf(r)
	if batch.AllOrNothing {
		b.bindGang(r.Context(), from, &batch, results)
	} else {
		b.each(r.Context(), len(results),
			func(ctx context.Context, i int) { results[i] = b.bindOne(ctx, from, &batch, &batch.Bindings[i]) })
	}
	return writeJSON(w, v1alpha1.BindingBatch{TypeMeta: v1alpha1.TypeMeta(req.Kind.Kind), Results: results})
}

// accept decodes the body of a batch. It rejects parameters for writes, such as dryRun, because
// batches do not implement them.
func accept(w http.ResponseWriter, r *http.Request, req *resource.Request, into any) error {
	for option := range r.URL.Query() {
		if option != "timeout" && option != "pretty" {
			return apierrors.NewBadRequest(fmt.Sprintf("%s does not support the option %q", req.Row.Resource, option))
		}
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBatch)).Decode(into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func bounded(n, limit int, of string) error {
	if n > limit {
		return apierrors.NewBadRequest(fmt.Sprintf("%d %s, at most %d are allowed", n, of, limit))
	}
	return nil
}

// each calls f concurrently with each i from 0 to n-1. The store combines the writes of these
// calls.
func (b *Batch) each(ctx context.Context, n int, f func(ctx context.Context, i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	callers := min(batchWorkers, n)
	group, ctx := kv.NewGroup(ctx, b.Binder.Clock, callers)
	for range callers {
		workers.Go(func() {
			defer group.Leave()
			for i := next.Add(1) - 1; int(i) < n; i = next.Add(1) - 1 {
				f(ctx, int(i))
			}
		})
	}
	workers.Wait()
}

func (b *Batch) bindOne(ctx context.Context, from *sender, batch *v1alpha1.BindingBatch,
	in *v1alpha1.Binding) (out v1alpha1.Result) {
	binding := bindingOf(in)
	p, err := b.beginBinding(ctx, from, binding)
	defer func() { p.end(out) }()
	if err == nil {
		err = b.admit(p.ctx, binding)
	}
	if err != nil {
		return refused(err)
	}
	return b.assign(p.ctx, from, batch, in, binding)
}

func (b *Batch) beginBinding(ctx context.Context, from *sender, binding *corev1.Binding) (*part, error) {
	return b.begin(ctx, from,
		ofPod("create", "binding", v1alpha1.PodRef{Namespace: binding.Namespace, Name: binding.Name}), binding)
}

// bindGang binds all pods of a batch or none of them, in one transaction of the store.
func (b *Batch) bindGang(ctx context.Context, from *sender, batch *v1alpha1.BindingBatch, results []v1alpha1.Result) {
	bindings, parts, errs := make([]*corev1.Binding, len(results)), make([]*part, len(results)), repeated(batch)
	b.each(ctx, len(results), func(ctx context.Context, i int) {
		bindings[i] = bindingOf(&batch.Bindings[i])
		var err error
		if parts[i], err = b.beginBinding(ctx, from, bindings[i]); err == nil && errs[i] == nil {
			err = b.admit(parts[i].ctx, bindings[i])
		}
		errs[i] = cmp.Or(errs[i], err)
	})
	defer func() {
		for i, p := range parts {
			p.end(results[i])
		}
	}()
	if b.refuseAll(batch, errs, results) {
		return
	}
	errs, err := b.Binder.bindAll(ctx, bindings)
	switch {
	case errors.Is(err, kv.ErrTooLarge):
		b.bindLargeGang(ctx, from, batch, bindings, results)
	case err != nil:
		for i := range results {
			results[i] = refused(err)
		}
	case !b.refuseAll(batch, errs, results):
		ctx = context.WithoutCancel(ctx)
		b.each(ctx, len(results),
			func(ctx context.Context, i int) { results[i] = b.bound(ctx, from, batch, &batch.Bindings[i]) })
	}
}

// repeated returns, for each binding, an error if an earlier binding in the batch is for the same
// pod.
func repeated(batch *v1alpha1.BindingBatch) []error {
	errs, seen := make([]error, len(batch.Bindings)), map[types.NamespacedName]bool{}
	for i, in := range batch.Bindings {
		pod := types.NamespacedName{Namespace: in.Namespace, Name: in.Name}
		if seen[pod] {
			errs[i] = apierrors.NewBadRequest(fmt.Sprintf("pod %s is in the batch more than once", pod))
		}
		seen[pod] = true
	}
	return errs
}

// bindLargeGang binds the pods of a gang that is too large for one transaction. It first checks all
// bindings, and rejects all if one is not possible. Then it binds all pods one by one, even if the
// client disconnects.
func (b *Batch) bindLargeGang(ctx context.Context, from *sender, batch *v1alpha1.BindingBatch,
	bindings []*corev1.Binding, results []v1alpha1.Result) {
	errs := make([]error, len(results))
	b.each(ctx, len(results),
		func(ctx context.Context, i int) { errs[i] = b.Binder.check(ctx, bindings[i].Namespace, bindings[i]) })
	if b.refuseAll(batch, errs, results) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	b.each(ctx, len(results), func(ctx context.Context, i int) {
		results[i] = b.assign(ctx, from, batch, &batch.Bindings[i], bindings[i])
	})
}

// refuseAll sets the results of all bindings to errors if errs contains an error. It reports
// whether it did so.
func (b *Batch) refuseAll(batch *v1alpha1.BindingBatch, errs []error, results []v1alpha1.Result) bool {
	bad := 0
	for i, err := range errs {
		if err != nil {
			results[i] = refused(err)
			bad++
		}
	}
	if bad == 0 {
		return false
	}
	for i, in := range batch.Bindings {
		if results[i].Code == 0 {
			results[i] = refused(apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, in.Name,
				fmt.Errorf("%d other bindings of the batch were rejected, and the batch is all or nothing", bad)))
		}
	}
	return true
}

func bindingOf(in *v1alpha1.Binding) *corev1.Binding {
	return &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: in.Namespace, Name: in.Name, UID: in.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: in.Node},
	}
}

// assign binds a pod whose binding was admitted.
func (b *Batch) assign(ctx context.Context, from *sender, batch *v1alpha1.BindingBatch, in *v1alpha1.Binding,
	binding *corev1.Binding) v1alpha1.Result {
	if err := b.Binder.bind(ctx, in.Namespace, binding, false); err != nil {
		return refused(err)
	}
	return b.bound(ctx, from, batch, in)
}

// bound returns the result for a pod that is bound. It also writes the event Scheduled if the batch
// names a controller that reports it.
func (b *Batch) bound(ctx context.Context, from *sender, batch *v1alpha1.BindingBatch,
	in *v1alpha1.Binding) v1alpha1.Result {
	if batch.ReportingController != "" {
		b.writeEvent(ctx, from, &eventsv1.Event{
			ReportingController: batch.ReportingController, ReportingInstance: batch.ReportingInstance,
			Type: corev1.EventTypeNormal, Reason: "Scheduled", Action: "Binding",
			Regarding: reference(v1alpha1.PodRef{Namespace: in.Namespace, Name: in.Name, UID: in.UID}),
			Note:      fmt.Sprintf("Successfully assigned %s/%s to %s", in.Namespace, in.Name, in.Node),
		})
	}
	return v1alpha1.Result{Code: http.StatusCreated}
}

func refused(err error) v1alpha1.Result {
	status := statusOf(err)
	return v1alpha1.Result{Code: status.Code, Reason: string(status.Reason), Message: status.Message}
}

// writeEvent writes an event with the fields that Kubernetes' scheduler sets. The event is dropped
// if the sender has no right to create it or if the write fails.
func (b *Batch) writeEvent(ctx context.Context, from *sender, e *eventsv1.Event) {
	now := b.Binder.Clock.Now()
	e.ObjectMeta = metav1.ObjectMeta{Namespace: e.Regarding.Namespace, Name: e.Regarding.Name + "." +
		strconv.FormatInt(now.UnixNano(), 16)}
	e.EventTime = metav1.NewMicroTime(now)
	p, err := b.begin(ctx, from, authorizer.AttributesRecord{Verb: "create", APIGroup: eventsv1.GroupName,
		Resource: "events", Namespace: e.Namespace}, e)
	if err == nil {
		_, err = b.Events().Create(p.ctx, e.Namespace, e, metav1.CreateOptions{})
	}
	_ = p.ended(http.StatusCreated, err)
}

func reference(p v1alpha1.PodRef) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

func (b *Batch) admit(ctx context.Context, binding *corev1.Binding) error {
	if errs := validateBinding(binding); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Binding"}, binding.Name, errs)
	}
	if !b.Admission.Handles(admission.Create) {
		return nil
	}
	user, _ := request.UserFrom(ctx)
	attrs := admission.NewAttributesRecord(binding, nil, corev1.SchemeGroupVersion.WithKind("Binding"),
		binding.Namespace, binding.Name,
		corev1.SchemeGroupVersion.WithResource("pods"), "binding", admission.Create, &metav1.CreateOptions{}, false, user)
	objects := registry.SchemeInterfaces(b.Scheme)
	if err := b.Admission.Admit(ctx, attrs, objects); err != nil {
		return err // returned unwrapped, as in Kubernetes
	}
	return b.Admission.Validate(ctx, attrs, objects) // returned unwrapped, as in Kubernetes
}

func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		return known.Status()
	}
	return apierrors.NewInternalError(err).ErrStatus
}

// writeJSON writes the answer to a batch.
func writeJSON(w http.ResponseWriter, v any) error {
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = body.WriteTo(w) // fails if the client has closed the connection
	return nil
}
