// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/test/soak/history"
)

// workloads has all workloads that run while processes are being killed.
type workloads struct {
	s       *soak
	running sync.WaitGroup
	// watching is done later than the other workloads, so that the watches also receive the last
	// writes.
	watching   sync.WaitGroup
	endWatches context.CancelFunc

	registers, counters, files *history.Log
	watchers                   []*watcher
	rollouts                   []*rollout
	sets                       []*identitySet
	jobs                       *jobs
	sites                      *sites
	services                   *services
	requests                   *requests
	crds                       *definitions
}

// registersDefinition has the CRD for registers that are custom resources.
const registersDefinition = `
apiVersion: v1
kind: Namespace
metadata: {name: soak}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: registers.soak.example.com}
spec:
  group: soak.example.com
  scope: Namespaced
  names: {plural: registers, singular: register, kind: Register, listKind: RegisterList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {value: {type: string}}}}}}
`

// newWorkloads creates the objects that the workloads need.
func (s *soak) newWorkloads() *workloads {
	s.apply(registersDefinition)
	w := &workloads{s: s, registers: &history.Log{}, counters: &history.Log{}, files: &history.Log{}}
	a := s.apis(1)[0]
	for _, res := range registerResources() {
		s.eventually(res.name+" are served",
			func(ctx context.Context) error { return a.do(ctx, http.MethodGet, res.path, nil, nil).err })
	}
	res := registerResources()[0]
	for i := range counterKeys {
		s.eventually("counters exist", func(ctx context.Context) error {
			got := a.do(ctx, http.MethodPost, res.path, res.object(counterName(i), "0"), nil)
			if got.code == http.StatusConflict {
				return nil
			}
			return got.err
		})
	}
	w.makePods()
	return w
}

// start starts all workloads, which run until ctx ends.
func (w *workloads) start(ctx context.Context) {
	s := w.s
	resources := registerResources()
	clients := s.apis(len(resources)*registerKeys + 2 + 4)
	next := func() *api {
		a := clients[0]
		clients = clients[1:]
		return a
	}
	part := uint64(100)
	random := func() uint64 { part++; return part }
	for _, res := range resources {
		for i := range registerKeys {
			rw := &registerWriter{s: s, api: next(), res: res, name: registerName(i),
				random: s.random(random()), log: w.registers}
			w.running.Go(func() { rw.run(ctx) })
		}
	}
	for range 2 {
		a, r := next(), s.random(random())
		w.running.Go(func() { s.readRegisters(ctx, a, r, w.registers) })
	}
	for range 4 {
		a, r := next(), s.random(random())
		w.running.Go(func() { s.increment(ctx, a, r, w.counters) })
	}
	// The watches have their own context, because they must run until they have received all
	// events.
	watching, end := context.WithCancel(context.WithoutCancel(ctx))
	w.endWatches = end
	for i, a := range s.apis(3 * len(resources)) {
		res := resources[i%len(resources)]
		one := &watcher{s: s, api: a, res: res, name: fmt.Sprintf("%s#%d", res.name, i), random: s.random(random())}
		w.watchers = append(w.watchers, one)
		w.watching.Go(func() { one.run(watching) })
	}
	w.startPods(ctx, random)
}

// finish waits until all workloads have ended, and then checks their results.
func (w *workloads) finish() {
	w.running.Wait()
	s := w.s
	clients := s.apis(3)
	fences := map[string]int64{}
	for _, res := range registerResources() {
		for i := range registerKeys {
			for _, a := range clients { // one final read through each API server
				s.eventually("register "+registerName(i)+" is read", func(context.Context) error {
					if _, ok := s.readRegister(a, res, registerName(i), w.registers); !ok {
						return errors.New("no answer")
					}
					return nil
				})
			}
		}
		s.eventually("a last write of "+res.name, func(ctx context.Context) error {
			fence := &object{}
			got := clients[0].do(ctx, http.MethodPost, res.path, map[string]any{
				"apiVersion": res.apiVersion, "kind": res.kind, "metadata": map[string]any{"generateName": "fence-"},
			}, fence)
			fences[res.name] = fence.version()
			return got.err
		})
	}
	for _, one := range w.watchers {
		s.eventually("watch "+one.name+" reports the last write", func(context.Context) error {
			if at, want := one.reached.Load(), fences[one.res.name]; at < want {
				return fmt.Errorf("version %d of %d", at, want)
			}
			return nil
		})
	}
	w.endWatches()
	w.watching.Wait()
	w.finishPods()
	w.checkHistories(clients[0])
}

// checkHistories checks the recorded histories with package history.
func (w *workloads) checkHistories(a *api) {
	s := w.s
	res := registerResources()[0]
	finals := map[string]int{}
	for i := range counterKeys {
		s.eventually("counter "+counterName(i)+" is read", func(ctx context.Context) error {
			o := &object{}
			if got := a.do(ctx, http.MethodGet, res.path+"/"+counterName(i), nil, o); got.err != nil {
				return got.err
			}
			n, err := strconv.Atoi(res.value(o))
			finals[res.key(counterName(i))] = n
			return err
		})
	}
	registers, counters := w.registers.Ops(), w.counters.Ops()
	var segments []history.Segment
	for _, one := range w.watchers {
		segments = append(segments, one.segments...)
	}
	found := slices.Concat(history.Registers(registers), history.Counters(counters, finals),
		history.Watches(registers, segments, belongs))
	for i, v := range found {
		if i == 100 {
			s.violatef("and %d more", len(found)-i)
			break
		}
		s.violatef("%v", v)
	}
	w.save("registers", registers)
	w.save("counters", counters)
	w.save("watches", segments)
}

// save writes a part of the history to a file, to help find the cause of a failure.
func (w *workloads) save(name string, parts any) {
	f, err := os.Create(filepath.Join(w.s.dir, name+".jsonl"))
	if err != nil {
		w.s.t.Error(err)
		return
	}
	defer f.Close()
	e := json.NewEncoder(f)
	switch parts := parts.(type) {
	case []history.Op:
		for _, p := range parts {
			err = errors.Join(err, e.Encode(p))
		}
	case []history.Segment:
		for _, p := range parts {
			err = errors.Join(err, e.Encode(p))
		}
	}
	if err != nil {
		w.s.t.Error(err)
	}
}

// remove deletes all objects of the workloads, and waits until they no longer exist.
func (w *workloads) remove() {
	s := w.s
	for _, ns := range []string{loadNamespace, siteNamespace} {
		s.eventually("namespace "+ns+" is gone", func(ctx context.Context) error {
			return gone(s.client.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}))
		})
	}
	a := s.apis(1)[0]
	s.eventually("the definition is gone", func(ctx context.Context) error {
		got := a.do(ctx, http.MethodDelete, definitionsPath+"/registers.soak.example.com", nil, nil)
		if got.code == http.StatusNotFound {
			return nil
		}
		return errors.Join(got.err, errors.New("deleting"))
	})
	w.services.reuse()
}

// gone returns nil if the result of a delete means that the object no longer exists, and otherwise
// an error.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(err, errors.New("deleting"))
}
