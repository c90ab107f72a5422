// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/status"
)

type fakePreemption struct{ node *testNode }

func (f fakePreemption) StartBy(types.UID) time.Time {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	if !clock.Real().Now().Before(f.node.room) {
		return time.Time{}
	}
	return f.node.room
}

func (f fakePreemption) Victim(types.UID) *status.Verdict {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	return f.node.doomed
}

type fakePlacement struct{}

func (fakePlacement) Pinned(types.UID, string) (cpus, nodes string) { return "", "" }
func (fakePlacement) Exclusive(types.UID, string) bool              { return false }
func (fakePlacement) UserNamespace(*v1.Pod, string) (*runtimeapi.UserNamespace, error) {
	return nil, nil
}

type fakeEnvironment struct{}

func (fakeEnvironment) Services(string) ([]*v1.Service, error) { return nil, nil }
func (fakeEnvironment) RuntimeHandler(string) (string, error)  { return "", nil }

type fakeRuntimeState struct{}

func (fakeRuntimeState) NetworkReady() error                             { return nil }
func (fakeRuntimeState) RecursiveReadOnly(string) bool                   { return false }
func (fakeRuntimeState) Listening(context.Context, string, []int32) bool { return true }

type fakeRelease struct{ node *testNode }

func (f fakeRelease) Release(context.Context, *v1.Pod) error {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	f.node.released = append(f.node.released, len(f.node.written))
	return nil
}

func (f fakeRelease) Forget(uid types.UID) {
	f.node.note(fmt.Sprintf("left, known: %t", f.node.pool.HasWorker(uid)))
}

func (f fakeRelease) Removed(uid types.UID) {
	f.node.note(fmt.Sprintf("gone, known: %t", f.node.pool.HasWorker(uid)))
}

type fakeObserver struct{ node *testNode }

func (fakeObserver) Started(time.Duration, map[Phase]time.Duration) {}
func (f fakeObserver) Updated(_, _ *v1.Pod)                         { f.node.note("asked ") }
func (f fakeObserver) Resized(_ time.Duration, err error) {
	f.node.note(fmt.Sprintf("resized %t ", err == nil))
}
