// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"
)

// TestMetrics checks that the metrics count results by probe, do not count errors, and are removed
// with the pod.
func TestMetrics(t *testing.T) {
	inTime(t, func(t *testing.T, w *world) {
		pod := &v1.Pod{}
		pod.Namespace, pod.Name, pod.UID = "ns", "p", "u"
		probe := func(command string, period int32) *v1.Probe {
			return &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{command}}},
				PeriodSeconds: period, FailureThreshold: 100}
		}
		w.answers["ready"] = true
		c := &v1.Container{Name: "c", ReadinessProbe: probe("ready", 10), LivenessProbe: probe("alive", 5)}
		w.Start(pod, c, "id", "", w.begun, Result{})
		w.after(21 * time.Second) // one probe runs at 0, 10 and 20 s, the other at 0, 5, 10, 15 and 20 s
		w.mu.Lock()
		w.broken = errors.New("no answer")
		w.mu.Unlock()
		w.after(time.Minute)
		want := `
# HELP prober_probe_total [BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.
# TYPE prober_probe_total counter
prober_probe_total{container="c",namespace="ns",pod="p",pod_uid="u",probe_type="Liveness",result="failed"} 5
prober_probe_total{container="c",namespace="ns",pod="p",pod_uid="u",probe_type="Readiness",result="successful"} 3
`
		if err := testutil.GatherAndCompare(w.metrics, strings.NewReader(want), "prober_probe_total"); err != nil {
			t.Error(err)
		}
		if n, err := testutil.GatherAndCount(w.metrics, "prober_probe_duration_seconds"); n != 1 || err != nil {
			t.Errorf("durations of %d probes, %v; only of those that succeed", n, err)
		}
		w.Stop("id")
		w.StopPod("u")
		if n, err := testutil.GatherAndCount(w.metrics); n != 0 || err != nil {
			t.Errorf("%d series of a removed pod, %v", n, err)
		}
	})
}

// world is a node with one container, in virtual time. answers determines the results of the
// container's probes.
type world struct {
	*Manager
	mu      sync.Mutex
	answers map[string]bool // results by the probe's command
	broken  error           // error that Exec returns instead of a result
	asked   []string        // "time: command"
	metrics *prometheus.Registry
	changes int
	events  []string
	begun   time.Time
}

func inTime(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{answers: map[string]bool{}, begun: time.Now(), metrics: prometheus.NewPedanticRegistry()}
		w.Manager = NewManager(ctx, Config{
			Clock: clock.RealClock{},
			Handler: &Handler{Exec: func(_ context.Context, _ string, command []string) (string, int32, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.asked = append(w.asked, time.Since(w.begun).String()+" "+command[0])
				if w.broken != nil {
					return "", 0, w.broken
				}
				if w.answers[command[0]] {
					return "", 0, nil
				}
				return "bad", 1, nil
			}},
			Changed: func(types.UID) { w.mu.Lock(); w.changes++; w.mu.Unlock() },
			Event: func(_ *v1.Pod, _, _, reason, message string) {
				w.mu.Lock()
				w.events = append(w.events, reason+": "+message)
				w.mu.Unlock()
			},
			Metrics:   w.metrics,
			Listening: func(context.Context, string, []int32) bool { return w.answer("listens") },
		})
		f(t, w)
		cancel()
		w.Wait()
	})
}

func (w *world) answer(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answers[name]
}

func (w *world) set(name string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[name] = ok
}

// after lets virtual time pass, and then waits until all goroutines are blocked.
func (w *world) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func probe(name string, delay, period, success, failure int32) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:        v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{name}}},
		InitialDelaySeconds: delay, PeriodSeconds: period, SuccessThreshold: success, FailureThreshold: failure,
		TimeoutSeconds: 1,
	}
}

func (w *world) start(c *v1.Container) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}}
	w.Start(pod, c, "id", "192.0.2.1", time.Now(), Result{})
	synctest.Wait()
}

func (w *world) expect(t *testing.T, started, ready bool, failed Kind) {
	t.Helper()
	known, _ := w.Result("id")
	s, r := known.Started, known.Ready
	k, _, _ := w.Failed("id")
	if s != started || r != ready || k != failed {
		t.Errorf("after %v: started %t, ready %t, failed %q; want %t, %t, %q", time.Since(w.begun), s, r, k,
			started, ready, failed)
	}
}

func TestReadiness(t *testing.T) {
	inTime(t, func(t *testing.T, w *world) {
		w.start(&v1.Container{Name: "c", ReadinessProbe: probe("ready", 2, 5, 2, 3)})
		w.expect(t, true, false, "")
		w.set("ready", true)
		w.after(2 * time.Second) // the probe runs for the first time
		w.expect(t, true, false, "")
		w.after(5 * time.Second) // the probe has the same result for the second time in a row
		w.expect(t, true, true, "")
		w.set("ready", false)
		w.after(10 * time.Second) // the probe fails twice
		w.expect(t, true, true, "")
		w.after(5 * time.Second)
		w.expect(t, true, false, "")
		if want := []string{"2s ready", "7s ready", "12s ready", "17s ready", "22s ready"}; !slices.Equal(w.asked, want) {
			t.Errorf("probes %q, want %q", w.asked, want)
		}
		if len(w.events) != 3 || w.events[0] != "Unhealthy: Readiness probe failed: bad" || w.changes != 2 {
			t.Errorf("events %q, %d changes", w.events, w.changes)
		}
	})
}

// TestNoAnswer checks that an error of the runtime does not change the results of probes.
func TestNoAnswer(t *testing.T) {
	inTime(t, func(t *testing.T, w *world) {
		w.set("alive", true)
		w.set("ready", true)
		w.start(&v1.Container{Name: "c", LivenessProbe: probe("alive", 0, 10, 1, 1),
			ReadinessProbe: probe("ready", 0, 10, 1, 1)})
		w.after(time.Second)
		w.expect(t, true, true, "")
		w.mu.Lock()
		w.broken = errors.New("connection refused")
		w.mu.Unlock()
		w.after(time.Minute)
		w.expect(t, true, true, "")
		if want :=
			"Unhealthy: Liveness probe errored and resulted in unknown state: connection refused"; !slices.Contains(
			w.events, want) {
			t.Errorf("events %q, without %q", w.events, want)
		}
	})
}

// TestWarning checks that a redirect to another host counts as success and records a warning.
func TestWarning(t *testing.T) {
	target, port := serve(t, http.RedirectHandler("http://elsewhere.invalid/", http.StatusFound), (*httptest.Server).Start)
	inTime(t, func(t *testing.T, w *world) {
		w.start(&v1.Container{Name: "c", LivenessProbe: &v1.Probe{
			ProbeHandler:  v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Host: target.IP, Port: port}},
			PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 1,
		}})
		w.after(time.Second)
		w.expect(t, true, true, "")
		want := "ProbeWarning: Liveness probe warning: Probe terminated redirects, Response body: "
		if len(w.events) != 1 || !strings.HasPrefix(w.events[0], want) {
			t.Errorf("events %q", w.events)
		}
	})
}

func TestStartupComesFirst(t *testing.T) {
	inTime(t, func(t *testing.T, w *world) {
		w.set("alive", true)
		w.set("ready", true)
		w.start(&v1.Container{Name: "c", StartupProbe: probe("startup", 0, 10, 1, 3),
			LivenessProbe: probe("alive", 0, 10, 1, 3), ReadinessProbe: probe("ready", 0, 10, 1, 3)})
		w.expect(t, false, false, "")
		w.set("startup", true)
		w.after(10 * time.Second)
		w.expect(t, true, true, "")
		if slices.Contains(w.asked[:1], "0s alive") || len(w.asked) != 4 {
			t.Errorf("probes %q", w.asked)
		}
		w.after(10 * time.Second)
		if slices.Contains(w.asked, "20s startup") {
			t.Error("the startup probe goes on")
		}
	})
}

func TestFailedPartEndsRun(t *testing.T) {
	for kind, c := range map[Kind]*v1.Container{
		Startup:  {Name: "c", StartupProbe: probe("no", 0, 1, 1, 3), LivenessProbe: probe("alive", 0, 1, 1, 1)},
		Liveness: {Name: "c", LivenessProbe: probe("no", 0, 1, 1, 3)},
	} {
		inTime(t, func(t *testing.T, w *world) {
			w.start(c)
			w.after(time.Second)
			w.expect(t, kind == Liveness, kind == Liveness, "")
			w.after(time.Second)
			w.expect(t, kind == Liveness, kind == Liveness, kind)
			if w.changes != 1 {
				t.Errorf("%s: %d changes", kind, w.changes)
			}
			w.after(10 * time.Second)
			if len(w.asked) != 3 {
				t.Errorf("%s: more probes: %q", kind, w.asked)
			}
			w.Stop("id")
			w.expect(t, false, false, "")
		})
	}
}

func TestWithoutProbes(t *testing.T) {
	inTime(t, func(t *testing.T, w *world) {
		w.start(&v1.Container{Name: "c"})
		w.expect(t, true, true, "")
		w.StopPod("u")
		w.expect(t, false, false, "")
	})
	ports := []v1.ContainerPort{{ContainerPort: 80}}
	inTime(t, func(t *testing.T, w *world) {
		w.start(&v1.Container{Name: "c", Ports: ports})
		w.expect(t, true, false, "")
		w.set("listens", true)
		w.after(listenPoll)
		w.expect(t, true, true, "")
	})
	inTime(t, func(t *testing.T, w *world) {
		w.start(&v1.Container{Name: "c", Ports: ports})
		w.after(listenPatience + listenPoll)
		w.expect(t, true, true, "") // the container never listens, but becomes ready after listenPatience
	})
}

// TestCounter compares the counter with a simple computation from the latest results.
func TestCounter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := counter{success: rapid.Int32Range(1, 4).Draw(t, "success"), failure: rapid.Int32Range(1, 4).Draw(t, "failure")}
		var answers []bool
		for range rapid.IntRange(1, 20).Draw(t, "answers") {
			ok := rapid.Bool().Draw(t, "ok")
			answers = append(answers, ok)
			need := int(c.failure)
			if ok {
				need = int(c.success)
			}
			want := len(answers) >= need && !slices.Contains(answers[max(len(answers)-need, 0):], !ok)
			if got := c.add(ok); got != want {
				t.Fatalf("after %v: %t, want %t", answers, got, want)
			}
		}
	})
}
