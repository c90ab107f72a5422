// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/clock"
	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/machine/machines"
	"keelson.dev/keelson/pkg/machine/machinestest"
)

// TestDecide checks when a switch begins, and which condition an agent reports if none does.
func TestDecide(t *testing.T) {
	wants := func(release, request string) v1alpha1.MachineSpec {
		return v1alpha1.MachineSpec{Release: release, Request: request}
	}
	failed := Entry{From: "1", To: "2", Request: "a", Failure: "kubelet: broken", Done: true}
	refusal := metav1.Condition{Type: v1alpha1.Upgraded, Reason: v1alpha1.ReasonRefused, ObservedGeneration: 5}
	earlier := refusal
	earlier.ObservedGeneration--
	for name, tc := range map[string]struct {
		spec   v1alpha1.MachineSpec
		status []metav1.Condition
		last   *Entry
		want   *Entry
		reason string // of the condition, if no switch begins
	}{
		"nothing wanted":    {reason: v1alpha1.ReasonCurrent},
		"what runs":         {spec: wants("1", ""), reason: v1alpha1.ReasonCurrent},
		"another one":       {spec: wants("2", "a"), want: &Entry{From: "1", To: "2", Request: "a"}},
		"a switch runs":     {spec: wants("3", ""), last: &Entry{From: "1", To: "2"}, reason: v1alpha1.ReasonSwitching},
		"it has failed":     {spec: wants("2", "a"), last: &failed, reason: v1alpha1.ReasonRolledBack},
		"failed, withdrawn": {last: &failed, reason: v1alpha1.ReasonRolledBack},
		"tried again": {spec: wants("2", "b"), last: &failed,
			want: &Entry{From: "1", To: "2", Request: "b"}},
		"another after a failure": {spec: wants("3", "a"), last: &failed,
			want: &Entry{From: "1", To: "3", Request: "a"}},
		"after a success": {spec: wants("2", ""), last: &Entry{From: "0", To: "1", Done: true},
			want: &Entry{From: "1", To: "2", Before: "0"}},
		"refused":         {spec: wants("2", ""), status: []metav1.Condition{refusal}},
		"refused earlier": {spec: wants("2", ""), status: []metav1.Condition{earlier}, want: &Entry{From: "1", To: "2"}},
	} {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Generation: 5}, Spec: tc.spec}
		m.Status.Conditions = tc.status
		got := decide(m, tc.last, "1")
		if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		if got != nil {
			continue
		}
		if c := condition(m, tc.last, nil); c == nil && tc.reason != "" || c != nil && c.Reason != tc.reason {
			t.Errorf("%s: condition %+v, want %q", name, c, tc.reason)
		}
	}
}

// fakeLocal is a machine whose switcher ends a switch at once.
type fakeLocal struct {
	journal Journal

	mu      sync.Mutex
	current string
}

func (l *fakeLocal) Current() (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current, nil
}

func (l *fakeLocal) Releases(context.Context) ([]v1alpha1.Release, error) {
	return []v1alpha1.Release{{Name: "1", Kubernetes: "v1.37.2"}}, nil
}
func (l *fakeLocal) ControlPlane() bool { return true }
func (l *fakeLocal) Check(_ context.Context, name string) error {
	if name == "missing" {
		return errMissing
	}
	return nil
}

var (
	errMissing = errors.New("is missing")
	errOther   = errors.New("other work runs")
)

func (l *fakeLocal) Begin(e *Entry) error {
	if e.To == "excluded" {
		return errOther
	}
	return l.journal.Save(e)
}

func (l *fakeLocal) Switch(_ context.Context, e *Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := *e
	if ended.Done = true; ended.To == "broken" {
		ended.Failure = "kubelet: broken"
	}
	l.current = ended.Release()
	return l.journal.Save(&ended)
}

// TestKeeper checks that a keeper creates its Machine, switches to the release in the specification, and
// reports how it ended.
func TestKeeper(t *testing.T) {
	s := machinestest.Start(t)
	admin, err := machines.NewClient(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	node, err := machines.NewClient(s.UserConfig(t, "system:node:m1", "system:nodes"))
	if err != nil {
		t.Fatal(err)
	}
	journal := Journal(filepath.Join(t.TempDir(), "switch.json"))
	k := &Keeper{Node: "m1", Machines: node, Local: &fakeLocal{journal: journal, current: "1"}, Journal: journal,
		Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); k.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	reports := func(release, previous, reason, message string) {
		t.Helper()
		controllertest.Eventually(t, reason+" "+release, func(ctx context.Context) (any, bool) {
			m, err := admin.Get(ctx, "m1")
			if err != nil {
				return err, false
			}
			c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.Upgraded)
			return m, c != nil && m.Status.ObservedGeneration == m.Generation && m.Status.Release == release &&
				m.Status.Previous == previous && c.Reason == reason && c.Message == message && m.Status.ControlPlane &&
				len(m.Status.Releases) == 1 && m.Status.Heartbeat != nil
		})
	}
	wants := func(release string) {
		t.Helper()
		if err := admin.SetSpec(t.Context(), "m1", func(s *v1alpha1.MachineSpec) { s.Release = release }); err != nil {
			t.Fatal(err)
		}
	}
	reports("1", "", v1alpha1.ReasonCurrent, "")
	wants("missing")
	reports("1", "", v1alpha1.ReasonRefused, "is missing")
	wants("excluded")
	reports("1", "", v1alpha1.ReasonRefused, "other work runs")
	if e, err := journal.Load(); e != nil || err != nil {
		t.Errorf("journal %+v, %v", e, err)
	}
	wants("2")
	reports("2", "1", v1alpha1.ReasonCurrent, "")
	wants("broken")
	reports("2", "1", v1alpha1.ReasonRolledBack, "kubelet: broken")
	wants("1")
	reports("1", "", v1alpha1.ReasonCurrent, "")
}
