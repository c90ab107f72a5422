// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
)

// answer makes the driver return an error with this code for all calls of a method. If code is OK,
// calls succeed again.
func (b *bench) answer(method string, code codes.Code) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = map[string]codes.Code{method: code}
}

func (b *bench) called(method string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.calls, method)
}

// TestNotStaged checks that a volume is unstaged if the driver may still be staging it in the
// background, but not if the driver has finally refused to stage it.
func TestNotStaged(t *testing.T) {
	for code, unstaged := range map[codes.Code]bool{codes.DeadlineExceeded: true, codes.InvalidArgument: false,
		codes.Internal: false} {
		t.Run(code.String(), func(t *testing.T) {
			b := newBench(t, cluster(t, false))
			v, m := b.volume("v", v1.PersistentVolumeFilesystem), b.kubelet()
			b.answer("NodeStageVolume", code)
			if _, err := m.Mount(t.Context(), pod("a"), v); err == nil {
				t.Fatal("it was not refused")
			}
			if err := m.Teardown(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			if got := b.called("NodeUnstageVolume"); got != unstaged || len(m.InUse()) > 0 {
				t.Errorf("unstaged %v, want %v; in use %v", got, unstaged, m.InUse())
			}
			if left := b.leftovers(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// TestStagedBefore checks that a volume that was staged stays recorded, and is unstaged at the end,
// if the driver refuses to stage it again.
func TestStagedBefore(t *testing.T) {
	b := newBench(t, cluster(t, false))
	v, m := b.volume("v", v1.PersistentVolumeFilesystem), b.kubelet()
	if _, err := m.Mount(t.Context(), pod("a"), v); err != nil {
		t.Fatal(err)
	}
	b.answer("NodeStageVolume", codes.Internal)
	for _, p := range []string{"a", "b"} {
		if _, err := m.Mount(t.Context(), pod(p), v); err == nil {
			t.Fatal("it was not refused")
		}
	}
	b.answer("", codes.OK)
	for _, p := range []string{"a", "b"} {
		if err := m.Teardown(t.Context(), pod(p).UID); err != nil {
			t.Fatal(err)
		}
	}
	if left := b.leftovers(); len(left) > 0 || !b.called("NodeUnstageVolume") {
		t.Errorf("left: %q, calls %q", left, b.calls)
	}
}

// TestNotUnstaged checks a volume that its driver fails to unstage: the pod can be removed, another
// pod can use the volume, and the volume stays listed as in use until it is unstaged.
func TestNotUnstaged(t *testing.T) {
	b := newBench(t, cluster(t, false))
	v, m := b.volume("v", v1.PersistentVolumeFilesystem), b.kubelet()
	if _, err := m.Mount(t.Context(), pod("a"), v); err != nil {
		t.Fatal(err)
	}
	b.answer("NodeUnstageVolume", codes.Internal)
	if err := m.Teardown(t.Context(), "a"); err != nil || len(m.InUse()) != 1 {
		t.Errorf("the first pod is kept: %v; in use %v", err, m.InUse())
	}
	if err := m.sweep(t.Context()); err == nil {
		t.Error("it is not tried again")
	}
	if _, err := m.Mount(t.Context(), pod("b"), v); err != nil {
		t.Fatal(err)
	}
	b.answer("", codes.OK)
	if err := m.Teardown(t.Context(), "b"); err != nil || len(b.leftovers()) > 0 || len(m.InUse()) > 0 {
		t.Errorf("%v; left %q, in use %v", err, b.leftovers(), m.InUse())
	}
}

// TestInUse checks that a volume is no longer listed as in use when its driver's volumes need not
// be attached.
func TestInUse(t *testing.T) {
	b := newBench(t, cluster(t, false))
	v, m := b.volume("v", v1.PersistentVolumeFilesystem), b.kubelet()
	if _, err := m.Mount(t.Context(), pod("a"), v); err != nil {
		t.Fatal(err)
	}
	if used := m.InUse(); len(used) != 1 {
		t.Errorf("in use: %v", used)
	}
	b.loose.Store(true)
	if used := m.InUse(); len(used) != 0 {
		t.Errorf("in use, though it is not attached: %v", used)
	}
	if err := m.Teardown(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
}
