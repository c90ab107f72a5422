// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"keelson.dev/api/clock"
	"keelson.dev/api/scheduling/v1alpha1"
)

const (
	// maxBinding is the maximum number of bindings that wait to be sent to the API server.
	maxBinding = 4096
	// binders is how many batches of bindings are sent at the same time. More workers would only
	// make each batch smaller.
	binders = 2
	// singleBinders is how many bindings are sent at the same time, one per request, if the server
	// does not support batches.
	singleBinders = 64
)

// binding is the binding of one pod to the node that the scheduler chose.
type binding struct {
	profile string
	pod     *v1.Pod
	node    string
	// done is called with the result. eventWritten is true if the server has already written the
	// pod's Scheduled event.
	done func(err error, eventWritten bool)
}

// binder binds pods: many pods in one request if the server supports that, otherwise with one
// request to pods/binding for each pod.
type binder struct {
	client  kubernetes.Interface
	batches *batches
	waiting chan *binding

	// clock and metrics are set before the first binding.
	clock   clock.Clock
	metrics *metrics
}

func newBinder(client kubernetes.Interface, b *batches) *binder {
	return &binder{client: client, batches: b, waiting: make(chan *binding, maxBinding)}
}

// add queues a binding. It blocks while maxBinding bindings wait to be sent, so that the scheduler does
// not decide faster than the API server binds pods.
func (b *binder) add(ctx context.Context, x *binding) {
	select {
	case b.waiting <- x:
	case <-ctx.Done():
		x.done(ctx.Err(), false)
	}
}

// run binds pods until ctx ends.
func (b *binder) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range binders {
		workers.Go(func() {
			for {
				batch := b.next(ctx)
				if len(batch) == 0 {
					return
				}
				b.bind(ctx, batch)
			}
		})
	}
	workers.Wait()
}

// next waits for a queued binding, and returns it with the other queued bindings, at most
// MaxBindings in all.
func (b *binder) next(ctx context.Context) []*binding {
	var batch []*binding
	select {
	case <-ctx.Done():
		return nil
	case x := <-b.waiting:
		batch = append(batch, x)
	}
	for len(batch) < v1alpha1.MaxBindings {
		select {
		case x := <-b.waiting:
			batch = append(batch, x)
			continue
		default:
		}
		break
	}
	return batch
}

func (b *binder) bind(ctx context.Context, batch []*binding) {
	byProfile := map[string][]*binding{}
	for _, x := range batch {
		byProfile[x.profile] = append(byProfile[x.profile], x)
	}
	for profile, some := range byProfile {
		if b.bindBatch(ctx, profile, some) {
			continue
		}
		b.bindEach(ctx, some)
	}
}

// bindBatch binds pods in one request. It repeats the binding of pods for which the server reports a
// transient error, one by one. bindBatch returns false if the server does not support batches.
func (b *binder) bindBatch(ctx context.Context, profile string, some []*binding) bool {
	failed, served := b.send(ctx, profile, some, false)
	b.bindEach(ctx, failed)
	return served
}

// bindGang binds all pods of a gang in one request, which the server carries out for all pods or
// for none. It returns false if the gang is too large for a batch or the server does not support
// batches.
func (b *binder) bindGang(ctx context.Context, profile string, all []*binding) bool {
	if len(all) > v1alpha1.MaxGang {
		return false
	}
	_, served := b.send(ctx, profile, all, true)
	return served
}

// retried calls send, and repeats it as often as Kubernetes repeats a binding, as long as the API
// server reports an internal error, is unavailable or refuses connections.
func retried(ctx context.Context, send func() error) error {
	return retry.OnError(retry.DefaultBackoff, func(err error) bool { return ctx.Err() == nil && retriable(err) }, send)
}

func retriable(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || utilnet.IsConnectionRefused(err)
}

// send binds pods in one request. It returns the bindings that are to be sent again, for which it has
// not called done. served is false if the server does not support batches.
func (b *binder) send(ctx context.Context, profile string, some []*binding, whole bool) (again []*binding,
	served bool) {
	body := v1alpha1.BindingBatch{
		AllOrNothing:        whole,
		TypeMeta:            v1alpha1.TypeMeta("BindingBatch"),
		ReportingController: profile, ReportingInstance: b.batches.instance,
	}
	for _, x := range some {
		body.Bindings = append(body.Bindings, v1alpha1.Binding{Namespace: x.pod.Namespace, Name: x.pod.Name,
			UID: x.pod.UID, Node: x.node})
	}
	var answer v1alpha1.BindingBatch
	start := b.clock.Now()
	err := retried(ctx, func() (err error) {
		served, err = b.batches.post(ctx, v1alpha1.BatchPath, body, &answer)
		return err
	})
	if !served {
		return nil, false
	}
	took, times := b.clock.Since(start), b.metrics.points[profile]
	if err == nil && len(answer.Results) != len(some) {
		err = fmt.Errorf("%d results for %d bindings", len(answer.Results), len(some))
	}
	for i, x := range some {
		written := err == nil
		result := err
		if written {
			result = answered(&answer.Results[i])
		}
		if written && !whole && retriable(result) {
			again = append(again, x)
			continue
		}
		times.observe(bindPoint, codeOfError(result), took)
		x.done(result, written)
	}
	return again, true
}

func (b *binder) bindEach(ctx context.Context, some []*binding) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(singleBinders, len(some)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(some); i = next.Add(1) - 1 {
				x, start := some[i], b.clock.Now()
				err := retried(ctx, func() error {
					return b.client.CoreV1().Pods(x.pod.Namespace).Bind(ctx, &v1.Binding{
						ObjectMeta: metav1.ObjectMeta{Namespace: x.pod.Namespace, Name: x.pod.Name, UID: x.pod.UID},
						Target:     v1.ObjectReference{Kind: "Node", Name: x.node},
					}, metav1.CreateOptions{})
				})
				b.metrics.points[x.profile].observe(bindPoint, codeOfError(err), b.clock.Since(start))
				x.done(err, false)
			}
		})
	}
	workers.Wait()
}
