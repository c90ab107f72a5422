// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/keelson/pkg/follow"
	"keelson.dev/keelson/pkg/machine/machines"
)

// Heartbeat is how often an agent reports if nothing changes.
const Heartbeat = 2 * time.Minute

// Delays between attempts of a Keeper, which are also those between two looks at a running switch.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Local is what a Keeper needs of its machine.
type Local interface {
	// Current returns the release that systemd starts programs of.
	Current() (string, error)
	// Releases returns the installed releases.
	Releases(ctx context.Context) ([]v1alpha1.Release, error)
	// ControlPlane reports whether the machine has an API server.
	ControlPlane() bool
	// Check returns an error if the machine cannot run a release. It changes nothing.
	Check(ctx context.Context, release string) error
	// Begin writes the entry of a switch to the journal. It returns an error instead if other work of the machine
	// excludes a switch.
	Begin(e *Entry) error
	// Switch starts the switcher, if it does not run.
	Switch(ctx context.Context, e *Entry) error
}

// Keeper makes a machine run the release that its Machine asks for, and keeps the status of the Machine
// true.
type Keeper struct {
	Node     string
	Machines *machines.Client
	Local    Local
	Journal  Journal
	Clock    clock.Clock
	Log      *slog.Logger
}

// Run does the keeper's work until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	changed := follow.NewSignal()
	seen := follow.NewCache(follow.Config[unstructured.Unstructured, v1alpha1.Machine]{
		Source: k.Machines.Source(k.Node),
		Keep: func(o *unstructured.Unstructured) *v1alpha1.Machine {
			m, err := machines.Decode(o)
			if err != nil {
				k.Log.Error("Failed to read the machine's object", "err", err)
			}
			return m
		},
		Changed: func(_ types.NamespacedName, old, current *v1alpha1.Machine) {
			// Reports of this keeper are no reason to report.
			if old == nil || current == nil || old.Generation != current.Generation {
				changed.Raise()
			}
		},
		Clock: k.Clock, Log: k.Log,
	})
	ended := make(chan struct{})
	go func() { defer close(ended); seen.Run(ctx) }()
	defer func() { <-ended }()
	if follow.Wait(ctx, seen) != nil {
		return // ctx has ended
	}
	loop := follow.Loop{Clock: k.Clock, Wake: changed, Period: Heartbeat, FirstRetry: firstRetry, LastRetry: lastRetry}
	loop.Run(ctx, func(ctx context.Context) bool {
		wanted := &v1alpha1.Machine{}
		if m := seen.Get(types.NamespacedName{Name: k.Node}); m != nil {
			wanted = m
		}
		done, err := k.round(ctx, wanted)
		if err != nil && ctx.Err() == nil {
			k.Log.Info("Failed to report the state of the machine", "err", err)
		}
		return done && err == nil
	})
}

// round starts a switch, if one is wanted, and reports. wanted is the Machine as it was last seen.
// done is false while a switch runs.
func (k *Keeper) round(ctx context.Context, wanted *v1alpha1.Machine) (done bool, err error) {
	entry, err := k.Journal.Load()
	if err != nil {
		return false, err
	}
	current, err := k.Local.Current()
	if err != nil {
		return false, err
	}
	var refusal error
	if next := decide(wanted, entry, current); next != nil {
		if refusal = k.Local.Check(ctx, next.To); refusal == nil {
			refusal = k.Local.Begin(next)
		}
		if refusal == nil {
			entry = next
			k.Log.Info("Switching to another release", "from", next.From, "to", next.To)
		}
	}
	if entry != nil && !entry.Done {
		// Started before the report, because the API may not be reachable.
		if err := k.Local.Switch(ctx, entry); err != nil {
			return false, err
		}
	}
	releases, err := k.Local.Releases(ctx)
	if err != nil {
		return false, err
	}
	err = k.Machines.SetStatus(ctx, k.Node, func(m *v1alpha1.Machine) {
		st := &m.Status
		st.ObservedGeneration = wanted.Generation
		st.Release, st.Releases, st.ControlPlane, st.Previous = current, releases, k.Local.ControlPlane(), ""
		if entry != nil {
			st.Previous = entry.Previous()
		}
		if entry != nil && !entry.Done {
			st.Release = entry.From // until all programs are of the new release
		}
		if c := condition(wanted, entry, refusal); c != nil {
			meta.SetStatusCondition(&st.Conditions, *c)
		}
		if now := k.Clock.Now(); st.Heartbeat == nil || now.Sub(st.Heartbeat.Time) >= Heartbeat/2 {
			st.Heartbeat = &metav1.Time{Time: now.Truncate(time.Second)}
		}
	})
	return entry == nil || entry.Done, err
}

// decide returns the switch that is to begin, or nil if there is none.
func decide(m *v1alpha1.Machine, last *Entry, current string) *Entry {
	to := m.Spec.Release
	if to == "" || to == current || last != nil && !last.Done || refused(m) {
		return nil
	}
	if last != nil && last.Failure != "" && last.To == to && last.Request == m.Spec.Request {
		return nil // it did not work
	}
	next := &Entry{From: current, To: to, Request: m.Spec.Request}
	if last != nil {
		next.Before = last.Previous()
	}
	return next
}

// refused reports whether the agent has refused the present specification. The administrator may have
// gone on with another machine since, so it does not obey later, when the reason is gone.
func refused(m *v1alpha1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.Upgraded)
	return c != nil && c.Reason == v1alpha1.ReasonRefused && c.ObservedGeneration == m.Generation
}

// condition returns the condition Upgraded, or nil if it does not change.
func condition(m *v1alpha1.Machine, entry *Entry, refusal error) *metav1.Condition {
	c := &metav1.Condition{Type: v1alpha1.Upgraded, Status: metav1.ConditionFalse, ObservedGeneration: m.Generation}
	switch {
	case refusal != nil:
		c.Reason, c.Message = v1alpha1.ReasonRefused, refusal.Error()
	case entry != nil && !entry.Done:
		c.Reason, c.Message = v1alpha1.ReasonSwitching, fmt.Sprintf("from %s to %s", entry.From, entry.Release())
	case refused(m):
		return nil
	case entry != nil && entry.Failure != "" && (m.Spec.Release == "" || m.Spec.Release == entry.To):
		c.Reason, c.Message = v1alpha1.ReasonRolledBack, entry.Failure
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonCurrent
	}
	return c
}
