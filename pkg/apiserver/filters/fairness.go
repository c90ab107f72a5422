// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	flowrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"keelson.dev/api/clock"
)

// maxWait is the maximum time that a request waits in a queue.
const maxWait = time.Minute

// Fairness limits concurrent requests by priority level. FlowSchemas and
// PriorityLevelConfigurations define the level and flow of a request, and the limit of each level.
// The library k8s.io/apiserver implements the queues.
type Fairness struct {
	Controller flowcontrol.Interface
	// Objects returns the number of objects of a resource ("deployments.apps") and their total size in
	// bytes. It returns false if these are unknown.
	Objects func(resource string) (objects, bytes int64, ok bool)
}

// fairness is the filter that withFairness adds.
type fairness struct {
	next     http.HandlerFunc
	cfg      Config
	control  flowcontrol.Interface
	estimate flowrequest.WorkEstimatorFunc
	dropped  flowcontrol.DroppedRequestsTracker
	clock    clock.Clock
	turns    *turns
}

// withFairness makes requests wait until their priority level has a free seat, and rejects them if
// their queue is full. It does not limit streams. A watch holds a seat only until its answer
// begins.
func withFairness(next http.HandlerFunc, cfg Config) http.HandlerFunc {
	f := &fairness{next: next, cfg: cfg, control: cfg.Fairness.Controller,
		dropped: flowcontrol.NewDroppedRequestsTracker(), clock: cfg.Clock, turns: newTurns(runtime.GOMAXPROCS(0), cfg.Clock)}
	count := func(resource string) (storage.Stats, error) {
		n, bytes, ok := cfg.Fairness.Objects(resource)
		if !ok {
			return storage.Stats{}, flowrequest.ObjectCountNotFoundErr
		}
		return storage.Stats{ObjectCount: n, EstimatedAverageObjectSizeBytes: bytes / max(1, n)}, nil
	}
	f.estimate = flowrequest.NewWorkEstimator(count, f.control.GetInterestedWatchCount,
		flowrequest.DefaultWorkEstimatorConfig(), f.control.GetMaxSeats)
	return f.serve
}

// class has the flow schema and the priority level of a request.
type class struct {
	schema *flowcontrolv1.FlowSchema
	level  *flowcontrolv1.PriorityLevelConfiguration
}

// setHeaders sets headers with the UIDs of the flow schema and priority level. The headers do not
// contain names, because only administrators may see these.
func (c *class) setHeaders(h http.Header) {
	if c.schema != nil {
		h.Set(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID, string(c.level.UID))
		h.Set(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID, string(c.schema.UID))
	}
}

// serve serves r once its priority level has a seat for it.
func (f *fairness) serve(w http.ResponseWriter, r *http.Request) {
	start := f.cfg.begin()
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		f.next(w, r)
		return
	}
	if _, ok := request.UserFrom(r.Context()); !ok {
		f.cfg.WriteError(w, r, apierrors.NewInternalError(errNoUser))
		return
	}
	switch {
	case info.Verb == "watch":
		f.watch(w, r, info, start)
	case LongRunning(r, info):
		f.cfg.end(fairnessFilter, start)
		f.next(w, r)
	default:
		f.ordinary(w, r, info, start)
	}
}

// ordinary serves a request that is not long-running and that reached the filter at start.
func (f *fairness) ordinary(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, start time.Time) {
	c, served := &class{}, false
	if u, _ := request.UserFrom(r.Context()); f.large(r, info) &&
		!slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		ctx, cancel := f.patience(r.Context())
		end, err := f.turns.take(ctx, u.GetName())
		cancel()
		if err != nil {
			f.refuse(w, info, c)
			return
		}
		defer end()
	}
	f.handle(r, info, c, func() {
		served = true
		c.setHeaders(w.Header())
		f.cfg.end(fairnessFilter, start)
		f.next(w, r)
	})
	if !served {
		f.refuse(w, info, c)
	}
}

// handle calls execute once r has a seat. It returns without calling execute if r is rejected.
func (f *fairness) handle(r *http.Request, info *request.RequestInfo, c *class, execute func()) {
	u, _ := request.UserFrom(r.Context())
	ctx, cancel := f.patience(r.Context())
	defer cancel()
	f.control.Handle(ctx, flowcontrol.RequestDigest{RequestInfo: info, User: u},
		func(schema *flowcontrolv1.FlowSchema, level *flowcontrolv1.PriorityLevelConfiguration, _ string) {
			c.schema, c.level = schema, level
		},
		func() flowrequest.WorkEstimate { return f.estimate(r, c.schema.Name, c.level.Name) },
		func(bool) {}, execute)
}

// patience returns a context that limits how long a request waits: to a quarter of the time until
// its deadline, and at most to maxWait.
func (f *fairness) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := f.cfg.RequestTimeout / 4
	if deadline, ok := ctx.Deadline(); ok {
		limit = deadline.Sub(f.clock.Now()) / 4
	}
	return context.WithTimeout(ctx, min(limit, maxWait))
}

// watch serves a watch. The watch holds a seat only until its answer begins. Afterwards, writes of
// objects that it watches cost more seats, because they cause events.
func (f *fairness) watch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, start time.Time) {
	begun, end := f.seatWatch(w, r, info)
	if end == nil {
		return
	}
	defer end()
	f.cfg.end(fairnessFilter, start)
	f.next(responsewriter.WrapForHTTP1Or2(&beginning{w, begun}), r)
}

// seatWatch waits until a watch has a seat. The caller calls begun when the answer begins, which
// gives the seat back, and end when the watch ends. Both are nil if the watch was refused.
func (f *fairness) seatWatch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) (begun, end func()) {
	c := &class{}
	turn, answered, done := make(chan struct{}), newSignal(), make(chan struct{})
	forget := flowcontrol.ForgetWatchFunc(nil)
	go func() {
		defer close(done)
		f.handle(r, info, c, func() {
			forget = f.control.RegisterWatch(r)
			close(turn)
			answered.wait()
		})
	}()
	select {
	case <-turn:
	case <-done: // rejected without getting a seat
		f.refuse(w, info, c)
		return nil, nil
	}
	c.setHeaders(w.Header())
	return answered.send, func() {
		answered.send()
		<-done
		if forget != nil {
			forget()
		}
	}
}

// refuse answers with 429 and Retry-After.
func (f *fairness) refuse(w http.ResponseWriter, info *request.RequestInfo, c *class) {
	c.setHeaders(w.Header())
	kind, level := "mutating", ""
	if info.Verb == "get" || info.Verb == "list" || info.Verb == "watch" {
		kind = "readOnly"
	}
	if c.level != nil {
		level = c.level.Name
	}
	f.cfg.Metrics.drop(kind, info)
	f.dropped.RecordDroppedRequest(level)
	w.Header().Set("Retry-After", strconv.FormatInt(f.dropped.GetRetryAfter(level), 10))
	http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}

// signal is a one-time signal. The method send may be called more than once, and the method wait
// blocks until the first call.
type signal struct {
	once sync.Once
	c    chan struct{}
}

func newSignal() *signal { return &signal{c: make(chan struct{})} }

func (s *signal) send() { s.once.Do(func() { close(s.c) }) }

func (s *signal) wait() { <-s.c }

// beginning is a response writer that calls begun when the answer begins.
type beginning struct {
	http.ResponseWriter
	begun func()
}

// WriteHeader calls begun and sends the header.
func (b *beginning) WriteHeader(code int) {
	b.begun()
	b.ResponseWriter.WriteHeader(code)
}

// Write calls begun, because the first write sends the header.
func (b *beginning) Write(p []byte) (int, error) {
	b.begun()
	return b.ResponseWriter.Write(p)
}

// Unwrap implements the method that http.ResponseController looks for.
func (b *beginning) Unwrap() http.ResponseWriter { return b.ResponseWriter }
