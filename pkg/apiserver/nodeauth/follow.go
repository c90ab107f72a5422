// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeauth

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store"
)

const (
	// followAgain is how long after an error pods are followed again.
	followAgain = time.Second
	// readAtLeast is how many pods are worth a goroutine.
	readAtLeast = 32
)

// Pods tells a graph of the pods in a store. It reads the store's own records:
// what this server has written need not be decoded, and nobody keeps a second
// copy of what is known of each pod.
type Pods struct {
	Graph *Graph
	// Store has the pods; Run asks for it when it begins.
	Store func() store.Interface
	// Part decodes PodPaths of the bytes of a pod that has not been decoded, if it can.
	Part  func(data []byte) (store.Object, bool)
	Clock clock.Clock
	Log   *slog.Logger

	synced atomic.Bool
}

// Synced reports whether all pods that existed at the start have been seen.
func (p *Pods) Synced() bool { return p.synced.Load() }

// Run follows the pods until ctx is done.
func (p *Pods) Run(ctx context.Context) {
	for {
		err := p.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if apierrors.IsResourceExpired(err) {
			continue // changes have been missed: from the present state again
		}
		p.Log.Error("Pods not followed", "err", err)
		again := p.Clock.NewTimer(followAgain)
		select {
		case <-ctx.Done():
		case <-again.C():
		}
		again.Stop()
	}
}

// follow takes over the present pods, and then what changes, until an error.
func (p *Pods) follow(ctx context.Context) error {
	// Without bookmarks the state would not say where it ends.
	watcher, err := p.Store().Watch(ctx, store.WatchOptions{SendInitialEvents: new(true), AllowBookmarks: true})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	var present map[object]struct{} // of those that may have gone meanwhile; nil: there are none
	if p.Synced() {
		present = map[object]struct{}{}
	}
	for {
		events, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		contents := p.read(events)
		for i := range events {
			e := &events[i]
			switch {
			case e.InitialEventsEnd:
				if present != nil {
					p.Graph.retainPods(present)
					present = nil
				}
				p.synced.Store(true)
			case e.Type == store.Bookmark:
			case e.Type == store.Deleted:
				p.Graph.deletePod(podOf(e.Record))
			default:
				p.set(e.Record, contents[i])
				if present != nil {
					present[podOf(e.Record)] = struct{}{}
				}
			}
		}
	}
}

// read decodes the pods of events that have a node, on all processors when there
// are many: at a start there may be very many. What cannot be decoded is nil.
func (p *Pods) read(events []store.Event) []*corev1.Pod {
	pods := make([]*corev1.Pod, len(events))
	part := max(readAtLeast, (len(events)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for from := 0; from < len(events); from += part {
		some := func() {
			for i := from; i < min(from+part, len(events)); i++ {
				if e := &events[i]; e.Type != store.Bookmark && e.Type != store.Deleted && bound(e.Record) {
					pods[i] = p.readOne(e.Record)
				}
			}
		}
		if from+part < len(events) {
			wg.Go(some)
		} else {
			some()
		}
	}
	wg.Wait()
	return pods
}

func (p *Pods) readOne(rec *store.Record) *corev1.Pod {
	obj, err := rec.ReadPart(p.Part)
	pod, ok := obj.(*corev1.Pod)
	if err != nil || !ok {
		p.Log.Error("Pod not understood", "pod", rec.Key, "err", err)
		return nil
	}
	return pod
}

// bound reports whether a pod has a node. Without one it refers to nothing.
func bound(rec *store.Record) bool { return rec.Fields["spec.nodeName"] != "" }

// set takes over the state of a pod. By one that is not understood its node reaches
// nothing: a kubelet cannot read it either.
func (p *Pods) set(rec *store.Record, pod *corev1.Pod) {
	if pod == nil {
		p.Graph.deletePod(podOf(rec))
		return
	}
	p.Graph.SetPod(pod)
}

// PodPaths returns the fields that a graph looks at in a pod.
func PodPaths() []string {
	paths := []string{
		"metadata.name", "metadata.namespace", "metadata.annotations",
		"spec.nodeName", "spec.serviceAccountName", "spec.imagePullSecrets", "spec.volumes", "spec.resourceClaims",
		"status.resourceClaimStatuses", "status.extendedResourceClaimStatus",
	}
	for _, list := range []string{"initContainers", "containers", "ephemeralContainers"} {
		for _, ref := range []string{"env.valueFrom.secretKeyRef", "env.valueFrom.configMapKeyRef", "envFrom"} {
			paths = append(paths, "spec."+list+"."+ref)
		}
	}
	return paths
}

// podOf is the pod of a record.
func podOf(rec *store.Record) object {
	namespace, name, _ := strings.Cut(rec.Key, "/")
	return object{pod, namespace, name}
}
