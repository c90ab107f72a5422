// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/csi"
	"keelson.dev/keelson/pkg/kubelet/eviction"
	"keelson.dev/keelson/pkg/kubelet/localdisk"
	"keelson.dev/keelson/pkg/kubelet/logs"
	"keelson.dev/keelson/pkg/kubelet/node"
	"keelson.dev/keelson/pkg/kubelet/objects"
	"keelson.dev/keelson/pkg/kubelet/podcertificate"
	"keelson.dev/keelson/pkg/kubelet/podsapi"
	"keelson.dev/keelson/pkg/kubelet/shutdown"
	"keelson.dev/keelson/pkg/kubelet/status"
	"keelson.dev/keelson/pkg/kubelet/volume"
	"keelson.dev/keelson/pkg/kubelet/worker"
)

// Kubelet is the node agent of one node. New builds it (see assembly.go) and Run runs it.
type Kubelet struct {
	shared  *shared
	runtime *runtime
	pods    podParts
	node    nodeParts
	upkeep  upkeepParts
	serving *serving
}

// podParts read the node's pods, run them and report their statuses.
type podParts struct {
	sources *sources
	view    *podView
	status  *status.Manager
	events  *podEvents
	changes *podsapi.Changes
	workers worker.Config
	// The managers of the objects and volumes that pods refer to:
	objects      *objects.Manager
	certificates *podcertificate.Manager
	drivers      *csi.Manager
	volumes      *volume.Manager
}

// nodeParts manage the machine's resources and the Node object.
type nodeParts struct {
	resources *resources
	hardware  *hardware
	cgroups   podCgroups
	pinning   *pinning
	usage     *usage
	status    *node.Node
}

// upkeepParts keep the use of the node's disk and memory within bounds, and end pods if the node
// runs out of resources or shuts down.
type upkeepParts struct {
	images   *containerImages
	logs     *logs.Keeper
	eviction *eviction.Manager
	shutdown *shutdown.Manager
	cleanup  *cleanup
}

// Run runs the kubelet until ctx ends or a part fails. Pods keep running after Run returns.
func (k *Kubelet) Run(ctx context.Context) error {
	defer func() { _ = k.runtime.client.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pool := worker.NewPool(ctx, k.shared.workers, k.pods.workers)
	defer k.pods.objects.Subscribe(k.objectChanged)()
	k.shared.events.start()
	defer k.shared.events.stop()
	k.shared.events.nodeState(v1.EventTypeNormal, "Starting", "Starting kubelet.")
	disk, err := k.localDisk(ctx) // before k.pods.drivers looks for plugins
	if err != nil {
		return err
	}
	err = runAll(ctx,
		k.node.status.Run,
		k.node.hardware.run,
		k.serving.run,
		k.pods.status.Run,
		k.pods.objects.Run,
		k.pods.certificates.Run,
		k.pods.volumes.Run,
		k.pods.drivers.Run,
		disk,
		k.runtime.watchState,
		func(ctx context.Context) error { return k.work(ctx, pool) },
	)
	cancel() // if a part has failed, stop the workers too
	pool.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// work waits for the container runtime. It then follows the pods in the API and the containers in
// the runtime.
func (k *Kubelet) work(ctx context.Context, pool *worker.Pool) error {
	driver, err := k.runtime.cgroupDriver(ctx)
	if err == nil {
		err = k.upkeep.cleanup.sandboxes.awaitRuntime(ctx)
	}
	if err != nil {
		return nil // both waits fail only when ctx ends
	}
	if err := k.node.cgroups.setup(driver); err != nil {
		return err
	}
	parts := []func(context.Context) error{
		func(ctx context.Context) error { return k.pods.events.run(ctx, pool) },
		func(ctx context.Context) error { return k.followAPI(ctx, pool) },
		k.node.pinning.run,
		k.upkeep.shutdown.Run,
		k.upkeep.logs.Run,
		k.upkeep.images.collector.Run,
	}
	if n := k.runtime.network; n != nil {
		parts = append(parts, n.Run)
	}
	if s := k.pods.sources.static; s != nil {
		s.Start(pool)
		parts = append(parts, s.Run)
	}
	return runAll(ctx, parts...)
}

// followAPI passes the pods of the API to the pool. When the pool has all of them, followAPI starts
// the parts that evict pods, remove leftovers of pods, and report the node after a restore.
func (k *Kubelet) followAPI(ctx context.Context, pool *worker.Pool) error {
	if err := k.pods.sources.run(ctx, pool); err != nil {
		return err
	}
	k.pods.events.again.raise() // list the runtime now, to end pods that no source has
	return runAll(ctx, k.upkeep.cleanup.run, k.upkeep.eviction.Run, k.reporter().run)
}

// objectChanged wakes the workers of pods that refer to an object, because a pod may be waiting for
// it in order to start.
func (k *Kubelet) objectChanged(_ objects.Ref, pods []*v1.Pod) {
	for _, pod := range pods {
		k.shared.workers.Wake(pod.UID)
	}
}

// certificateChanged passes a new certificate to a pod: it wakes the pod's worker, because the pod may
// be waiting for its first certificate, and refreshes the pod's volumes.
func (k *Kubelet) certificateChanged(pod types.UID) {
	k.shared.workers.Wake(pod)
	k.pods.volumes.Refresh(pod)
}

// localDisk creates the sockets of the built-in CSI driver, whose volumes are on the node's own disk,
// and returns the function that serves the driver. If the driver is disabled, that function does nothing.
func (k *Kubelet) localDisk(ctx context.Context) (serve func(context.Context) error, err error) {
	cfg := k.shared.cfg
	if !cfg.DiskVolumes {
		return func(context.Context) error { return nil }, nil
	}
	return localdisk.New(localdisk.Config{RootDir: cfg.RootDir, NodeName: cfg.NodeName, Version: cfg.Version,
		Log: cfg.Log}).Listen(ctx)
}

// runAll runs all parts until they end. The first part that returns an error cancels the context of
// the others.
func runAll(ctx context.Context, parts ...func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		g.Go(func() error { return part(ctx) })
	}
	return g.Wait()
}
