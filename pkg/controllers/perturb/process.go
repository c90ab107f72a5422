// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package perturb

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/record"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Member is a controller to run in the process under test, with the name of its service account.
type Member struct {
	Account string
	New     func(controller.Deps) (controller.Controller, error)
}

// process is one process of a controller manager, from its start until it is killed.
type process struct {
	cell    *Cell
	faults  *Faults
	members []Member
	options controller.Options
	log     *slog.Logger
	trace   func(string)

	dead   atomic.Bool
	writes atomic.Int64
	cancel context.CancelFunc
}

// die simulates kill -9: afterwards no request of the process reaches the API server.
func (p *process) die() error {
	p.dead.Store(true)
	p.cancel()
	return errDead
}

// run runs the controllers until ctx ends or the process is killed.
func (p *process) run(ctx context.Context) error {
	ctx, p.cancel = context.WithCancel(ctx)
	defer p.cancel()
	rt := &transport{base: p.cell.base, faults: p.faults, p: p}
	shared := p.cell.config(rt, "")
	client, err := kubernetes.NewForConfig(shared)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	factory := controller.NewInformers(client, 0)
	var made []controller.Controller
	for _, m := range p.members {
		c, err := p.make(m, factory, rt)
		if err != nil {
			return err
		}
		made = append(made, c)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	// Run the controllers even if the process was killed before its caches were filled, because Run
	// also stops what New has started.
	errs := make([]error, len(made))
	var wg sync.WaitGroup
	for i, c := range made {
		wg.Go(func() { errs[i] = c.Run(ctx) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (p *process) make(m Member, factory informers.SharedInformerFactory, rt *transport) (controller.Controller,
	error) {
	own := p.cell.config(rt, m.Account)
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	md, err := metadata.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("metadata client: %w", err)
	}
	return m.New(controller.Deps{
		Client: client, Informers: factory, Metadata: md, Discovery: client.Discovery(),
		// The mapper uses a client without faults. It sends requests while it holds a lock, and
		// virtual time does not advance while other goroutines wait for a lock.
		Mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(p.cell.Client.Discovery())),
		Events: &record.FakeRecorder{}, Clock: p.cell.clock, Log: p.log, Options: p.options,
	})
}

// runProcesses runs one process after another until ctx ends: when a process was killed, it starts
// the next one after a pause.
func (c *Cell) runProcesses(ctx context.Context, next func() *process) error {
	for life := 0; ctx.Err() == nil; life++ {
		p := next()
		if err := p.run(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		pause := time.Duration(p.faults.hash("pause", life) % uint64(maxPause))
		select {
		case <-ctx.Done():
		case <-c.clock.After(pause):
		}
	}
	return nil
}

// maxPause is the maximum pause between the end of a killed process and the start of the next one.
const maxPause = 5 * time.Second
