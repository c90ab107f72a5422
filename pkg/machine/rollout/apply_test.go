// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"keelson.dev/api/clock"
	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/backup"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/machine/machines"
	"keelson.dev/keelson/pkg/machine/machinestest"
)

// agents answers the specifications of machines as their agents do, until ctx ends. It returns the
// machines that have changed, in this order.
func agents(ctx context.Context, client *machines.Client, bad, refused string) <-chan []string {
	out := make(chan []string, 1)
	go func() {
		var changed []string
		defer func() { out <- changed }()
		for ctx.Err() == nil {
			list, _ := client.List(ctx)
			for i := range list {
				m := &list[i]
				if m.Status.ObservedGeneration == m.Generation {
					continue
				}
				wanted := m.Spec.Release
				_ = client.SetStatus(ctx, m.Name, func(now *v1alpha1.Machine) {
					c := metav1.Condition{Type: v1alpha1.Upgraded, ObservedGeneration: m.Generation, Message: "why",
						Status: metav1.ConditionFalse}
					switch {
					case wanted != "" && m.Name == bad:
						c.Reason = v1alpha1.ReasonRolledBack
					case wanted != "" && m.Name == refused:
						c.Reason = v1alpha1.ReasonRefused
					default:
						c.Reason, c.Status = v1alpha1.ReasonCurrent, metav1.ConditionTrue
						if wanted != "" && wanted != m.Status.Release {
							changed = append(changed, m.Name)
							now.Status.Previous, now.Status.Release = m.Status.Release, wanted
						}
					}
					now.Status.ObservedGeneration = m.Generation
					meta.SetStatusCondition(&now.Status.Conditions, c)
				})
			}
		}
	}()
	return out
}

// newCluster returns a cluster with the machines and nodes of exampleState.
func newCluster(t *testing.T) *Cluster {
	t.Helper()
	s := machinestest.Start(t)
	client, err := machines.NewClient(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	example := exampleState()
	for i := range example.Nodes {
		n, m := &example.Nodes[i], &example.Machines[i]
		if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, "the Machine "+m.Name, func(ctx context.Context) (any, bool) {
			err := client.SetStatus(ctx, m.Name, func(now *v1alpha1.Machine) {
				now.Status = m.Status
				now.Status.Heartbeat = &metav1.Time{Time: time.Now()}
			})
			return err, err == nil
		})
	}
	if err := backup.Record(t.Context(), s.Client, time.Now()); err != nil {
		t.Fatal(err)
	}
	return &Cluster{Machines: client, Client: s.Client, Clock: clock.Real()}
}

// TestApply checks that a plan is made in its order, that a failure ends it, that it can be repeated, and
// that no machine is asked for a release at the end.
func TestApply(t *testing.T) {
	for name, tc := range map[string]struct {
		bad, refused string
		want         string // a part of the error; empty if there is none
		changed      string
	}{
		"good":    {"", "", "", "c1 c2 w1 w2"},
		"bad":     {"w1", "", "w1: the release does not work: why; this machine runs 2 again", "c1 c2"},
		"refused": {"", "c2", "c2: the machine refuses the release: why; nothing was changed", "c1"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			apply := func(bad, refused string) (changed []string, err error) {
				ctx, cancel := context.WithCancel(t.Context())
				ended := agents(ctx, c.Machines, bad, refused)
				var out bytes.Buffer
				c.Out = &out
				state, err := c.Read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for i := range state.Machines { // the API server sets the times of creation
					state.Machines[i].CreationTimestamp = metav1.Time{}
				}
				p, err := state.Upgrade("2.1")
				if err != nil || len(p.Findings) > 0 {
					t.Fatalf("%+v, %v", p, err)
				}
				err = c.Apply(t.Context(), p)
				cancel()
				changed = <-ended
				if lines := strings.Count(out.String(), "\n"); lines != len(changed) {
					t.Errorf("%d machines changed, printed\n%s", len(changed), out.String())
				}
				return changed, err
			}
			changed, err := apply(tc.bad, tc.refused)
			if got := strings.Join(changed, " "); got != tc.changed {
				t.Errorf("changed %s, want %s", got, tc.changed)
			}
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			again, err := apply("", "")
			if got := strings.Join(append(changed, again...), " "); err != nil || got != "c1 c2 w1 w2" {
				t.Errorf("after the repetition, changed %s, %v", got, err)
			}
			list, err := c.Machines.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range list {
				if list[i].Spec != (v1alpha1.MachineSpec{}) {
					t.Errorf("%s is still asked for %+v", list[i].Name, list[i].Spec)
				}
			}
		})
	}
}

// TestCheckAPI checks that an API server in use has what the checks read.
func TestCheckAPI(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	got, err := CheckAPI(t.Context(), s.Client.Discovery().RESTClient(), version.MustParseSemantic("1.38.0"))
	if err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
}
