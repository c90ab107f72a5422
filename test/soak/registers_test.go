// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"keelson.dev/keelson/test/soak/history"
)

const (
	loadNamespace = "soak"
	// registerKeys is the number of keys with a single writer in each resource.
	registerKeys = 6
	counterKeys  = 2
	// registerPause is the mean pause between two writes of a writer. The twelve writers together
	// write about 15 times per second.
	registerPause = 700 * time.Millisecond
)

// registerResources returns the resources whose objects serve as registers: a built-in resource and
// a custom resource. A register is a key with one writer.
func registerResources() []*resource {
	return []*resource{
		{
			name: "configmaps", path: "/api/v1/namespaces/" + loadNamespace + "/configmaps", apiVersion: "v1", kind: "ConfigMap",
			value: func(o *object) string { return o.Data["value"] },
			set:   func(o *object, v string) { o.Data = map[string]string{"value": v} },
		},
		{
			name: "registers", path: "/apis/soak.example.com/v1/namespaces/" + loadNamespace + "/registers",
			apiVersion: "soak.example.com/v1", kind: "Register",
			value: func(o *object) string { v, _ := o.Spec["value"].(string); return v },
			set:   func(o *object, v string) { o.Spec = map[string]any{"value": v} },
		},
	}
}

// registerWriter is the only writer of one key.
type registerWriter struct {
	s      *soak
	api    *api
	res    *resource
	name   string
	random *rand.Rand
	log    *history.Log

	written int
	// now is the state of the object as the writer knows it, or nil if the object does not exist.
	// If sure is false, the state is uncertain and the writer must read it first.
	now  *object
	sure bool
}

func (w *registerWriter) run(ctx context.Context) {
	for pause(ctx, time.Duration(w.random.Int64N(int64(2*registerPause)))) {
		switch {
		case !w.sure:
			w.now, w.sure = w.s.readRegister(w.api, w.res, w.name, w.log)
		case w.now == nil:
			w.create()
		case w.random.IntN(6) == 0:
			w.remove()
		default:
			w.update()
		}
	}
}

// begin returns an operation on the writer's key that begins now.
func (w *registerWriter) begin(kind history.Kind) history.Op {
	return history.Op{Client: w.api.name, Kind: kind, Key: w.res.key(w.name), Begin: w.s.at()}
}

// end sets the end and the outcome of the operation, and records it.
func (w *registerWriter) end(o history.Op, a answer, result *object) {
	o.End, o.Outcome = w.s.at(), a.outcome
	if a.err != nil {
		o.Note = a.err.Error()
	}
	w.sure = a.outcome == history.Acknowledged
	if w.sure && result != nil {
		o.Version = result.version()
	}
	if w.sure {
		w.now = result
	}
	w.log.Add(o)
}

func (w *registerWriter) value() string {
	w.written++
	return fmt.Sprintf("%s-%d", w.name, w.written)
}

func (w *registerWriter) create() {
	o, result := w.begin(history.Create), &object{}
	o.Value = w.value()
	a := w.api.do(context.Background(), http.MethodPost, w.res.path, w.res.object(w.name, o.Value), result)
	w.end(o, a, result)
}

func (w *registerWriter) update() {
	o, result := w.begin(history.Update), &object{}
	o.Value, o.Base = w.value(), w.now.version()
	next := w.res.object(w.name, o.Value)
	next.Metadata.ResourceVersion = w.now.Metadata.ResourceVersion
	a := w.api.do(context.Background(), http.MethodPut, w.res.path+"/"+w.name, next, result)
	w.end(o, a, result)
}

func (w *registerWriter) remove() {
	o := w.begin(history.Delete)
	o.Base = w.now.version()
	a := w.api.do(context.Background(), http.MethodDelete, w.res.path+"/"+w.name, precondition(w.now), nil)
	w.end(o, a, nil)
}

// readRegister reads the current value of a register. It records the read if the server responded.
func (s *soak) readRegister(a *api, res *resource, name string, log *history.Log) (*object, bool) {
	o := history.Op{Client: a.name, Kind: history.Read, Key: res.key(name), Begin: s.at(), Outcome: history.Acknowledged}
	found := &object{}
	got := a.do(context.Background(), http.MethodGet, res.path+"/"+name, nil, found)
	o.End = s.at()
	switch {
	case got.code == http.StatusNotFound:
		found = nil
	case got.outcome != history.Acknowledged:
		return nil, false
	default:
		o.Value, o.Version = res.value(found), found.version()
	}
	log.Add(o)
	return found, true
}

// readRegisters reads random registers one after the other with a client that is not their writer.
func (s *soak) readRegisters(ctx context.Context, a *api, random *rand.Rand, log *history.Log) {
	resources := registerResources()
	for pause(ctx, time.Duration(random.Int64N(int64(registerPause)))) {
		s.readRegister(a, resources[random.IntN(len(resources))], registerName(random.IntN(registerKeys)), log)
	}
}

func registerName(i int) string { return fmt.Sprintf("key-%d", i) }
func counterName(i int) string  { return fmt.Sprintf("counter-%d", i) }

// increment repeatedly reads a counter and writes the value plus one, on the condition that the
// counter has not changed.
func (s *soak) increment(ctx context.Context, a *api, random *rand.Rand, log *history.Log) {
	res := registerResources()[0]
	for pause(ctx, time.Duration(random.Int64N(int64(2*registerPause)))) {
		name := counterName(random.IntN(counterKeys))
		now := &object{}
		if a.do(ctx, http.MethodGet, res.path+"/"+name, nil, now).outcome != history.Acknowledged {
			continue
		}
		n, err := strconv.Atoi(res.value(now))
		if err != nil {
			s.violatef("counter %s is %q", name, res.value(now))
			continue
		}
		o := history.Op{Client: a.name, Kind: history.Update, Key: res.key(name), Value: strconv.Itoa(n + 1),
			Base: now.version(), Begin: s.at()}
		next, result := res.object(name, o.Value), &object{}
		next.Metadata.ResourceVersion = now.Metadata.ResourceVersion
		got := a.do(context.Background(), http.MethodPut, res.path+"/"+name, next, result)
		o.End, o.Outcome, o.Version = s.at(), got.outcome, result.version()
		if got.err != nil {
			o.Note, o.Version = got.err.Error(), 0
		}
		log.Add(o)
	}
}
