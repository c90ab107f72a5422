// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeauth

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store"
)

// followAgain is the delay before a failed watch of pods is started again.
const followAgain = time.Second

// Pods passes the pods in a store to a graph. It passes the records of the store, not decoded
// copies, so that pods are not stored twice and few of them need to be decoded.
type Pods struct {
	Graph *Graph
	// Store returns the store of pods. Only Run calls it.
	Store func() store.Reader
	// Part decodes the fields PodPaths of a stored pod. It returns false if the pod cannot be decoded.
	Part  func(data []byte) (store.Object, bool)
	Clock clock.Clock
	Log   *slog.Logger

	synced atomic.Bool
}

// Synced reports whether the graph has all pods that existed when Run started.
func (p *Pods) Synced() bool { return p.synced.Load() }

// Run passes all pods and their changes to the graph until ctx is done.
func (p *Pods) Run(ctx context.Context) {
	p.Graph.readWith(p.read)
	for {
		err := p.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if apierrors.IsResourceExpired(err) {
			continue // events were missed, so watch again from the current state
		}
		p.Log.Error("Failed to watch pods for node authorization", "err", err)
		again := p.Clock.NewTimer(followAgain)
		select {
		case <-ctx.Done():
		case <-again.C():
		}
		again.Stop()
	}
}

// follow passes the current pods and then their changes to the graph, until an error.
func (p *Pods) follow(ctx context.Context) error {
	// A bookmark marks the end of the initial state.
	watcher, err := p.Store().Watch(ctx, store.WatchOptions{SendInitialEvents: new(true), AllowBookmarks: true})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	var present map[string]string // nodes of the initial pods, by key; nil once the initial state is complete
	if p.Synced() {
		present = map[string]string{}
	}
	for {
		events, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			switch {
			case e.InitialEventsEnd:
				if present != nil {
					p.Graph.retainPods(present)
					present = nil
				}
				p.synced.Store(true)
			case e.Type == store.Bookmark:
			case e.Type == store.Deleted:
				p.Graph.deletePod(e.Record)
			default:
				p.Graph.pod(e.Record)
				if present != nil {
					present[e.Record.Key] = nodeOf(e.Record)
				}
			}
		}
	}
}

// read decodes the fields of a pod that the graph uses. It returns nil if the pod cannot be
// decoded.
func (p *Pods) read(rec *store.Record) *corev1.Pod {
	obj, err := rec.ReadPart(p.Part)
	pod, ok := obj.(*corev1.Pod)
	if err != nil || !ok {
		p.Log.Error("Failed to decode pod for node authorization", "pod", rec.Key, "err", err)
		return nil
	}
	return pod
}

// PodPaths returns the fields of a pod that the graph reads.
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

// podOf returns the object of the pod with a record's key.
func podOf(key string) object {
	namespace, name, _ := strings.Cut(key, "/")
	return object{pod, namespace, name}
}

// nodeOf returns the name of the node of a record's pod, or "" if the pod has no node.
func nodeOf(rec *store.Record) string { return rec.Fields["spec.nodeName"] }
