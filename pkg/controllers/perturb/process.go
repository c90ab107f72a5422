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

// Member is a controller of the process that is disturbed, with its account.
type Member struct {
	Account string
	New     func(controller.Deps) (controller.Controller, error)
}

// process is one life of a controller manager.
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

// die ends the process as kill -9 would: from here on nothing it does reaches
// the API server.
func (p *process) die() error {
	p.dead.Store(true)
	p.cancel()
	return errDead
}

// run lives until ctx ends or the process dies.
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
	// One that died before its caches were filled runs all the same: what New made is ended by Run.
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

func (p *process) make(m Member, factory informers.SharedInformerFactory, rt *transport) (controller.Controller, error) {
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
		// The mapper asks while it holds its lock, and virtual time stands still while
		// somebody waits for a lock: it is not disturbed, and never has to wait.
		Mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(p.cell.Client.Discovery())),
		Events: &record.FakeRecorder{}, Clock: p.cell.clock, Log: p.log, Options: p.options,
	})
}

// lives runs processes, each after the one before has died, until ctx ends. The
// writes of the last one are counted in writes.
func (c *Cell) lives(ctx context.Context, next func() *process) error {
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

// maxPause is how long it takes at most until a process is started again.
const maxPause = 5 * time.Second
