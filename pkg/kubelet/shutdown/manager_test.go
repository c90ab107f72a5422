// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/api/clock"
)

// machine simulates logind and the pods of a node. It uses virtual time.
type machine struct {
	events chan bool

	mu    sync.Mutex
	delay time.Duration
	fixed bool // if true, SetMaxDelay has no effect
	locks int  // number of inhibitor locks that are held
	story []string
	ends  map[string]time.Time
	needs map[string]time.Duration // how long each pod takes to end, by its name
	since time.Time
	fails int // number of connection attempts that fail
}

func (m *machine) notef(format string, args ...any) {
	m.story = append(m.story, fmt.Sprintf("%v ", time.Since(m.since).Truncate(time.Second))+fmt.Sprintf(format, args...))
}

func (m *machine) MaxDelay(context.Context) (time.Duration, error) { return m.delay, nil }

func (m *machine) SetMaxDelay(_ context.Context, d time.Duration) error {
	if !m.fixed {
		m.delay = d
	}
	return nil
}

type lock struct {
	once sync.Once
	m    *machine
}

func (l *lock) Close() error {
	l.once.Do(func() {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		l.m.locks--
		l.m.notef("let go")
	})
	return nil
}

func (m *machine) Inhibit(context.Context) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.locks++
	return &lock{m: m}, nil
}

func (m *machine) Shutdowns(context.Context) (<-chan bool, error) { return m.events, nil }

func (m *machine) connect() (Logind, io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails > 0 {
		m.fails--
		return nil, nil, errors.New("no bus")
	}
	return m, io.NopCloser(nil), nil
}

func podOf(name string, priority int32, grace int64) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{Priority: &priority, TerminationGracePeriodSeconds: &grace}}
}

func (m *machine) config(c *kubeletconfig.KubeletConfiguration, pods ...*v1.Pod) Config {
	return Config{
		Kubelet: c, Connect: m.connect, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Changed: func() {},
		Pods: func() []*v1.Pod { return pods },
		End: func(pod *v1.Pod, grace int64) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.notef("end %s %d", pod.Name, grace)
			m.ends[pod.Name] = time.Now().Add(min(m.needs[pod.Name], time.Duration(grace)*time.Second))
		},
		Ended: func(_ context.Context, pod *v1.Pod) bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			at, ok := m.ends[pod.Name]
			return ok && !time.Now().Before(at)
		},
	}
}

func newMachine() *machine {
	return &machine{events: make(chan bool), delay: 5 * time.Second, ends: map[string]time.Time{},
		needs: map[string]time.Duration{}, since: time.Now()}
}

func times(total, last time.Duration) *kubeletconfig.KubeletConfiguration {
	return &kubeletconfig.KubeletConfiguration{
		ShutdownGracePeriod:             metav1.Duration{Duration: total},
		ShutdownGracePeriodCriticalPods: metav1.Duration{Duration: last},
	}
}

// run sets up the machine with the function f, starts a Manager, calls the other given function, and
// stops the Manager. It checks that no inhibitor lock is held at the end.
func run(t *testing.T, f func(m *machine), c *kubeletconfig.KubeletConfiguration,
	then func(m *machine, s *Manager), pods ...*v1.Pod) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		if f != nil {
			f(m)
		}
		s := New(m.config(c, pods...))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		then(m, s)
		close(m.events)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if m.locks != 0 {
			t.Errorf("%d locks are held at the end", m.locks)
		}
	})
}

// pass lets virtual time pass, and then waits until the manager's goroutines are blocked.
func pass(d time.Duration) {
	<-clock.Real().NewTimer(d).C()
	synctest.Wait()
}

func TestShutdown(t *testing.T) {
	pods := []*v1.Pod{podOf("web", 0, 5), podOf("slow", 100, 60), podOf("dns", critical, 60),
		podOf("late", critical+1000, 60)}
	prepare := func(m *machine) {
		m.needs = map[string]time.Duration{"web": time.Second, "slow": time.Hour, "dns": 2 * time.Second, "late": time.Second}
	}
	run(t, prepare, times(30*time.Second, 10*time.Second), func(m *machine, s *Manager) {
		if m.locks != 1 || m.delay != 30*time.Second || s.Down() != nil {
			t.Fatalf("locks %d, delay %s, %v", m.locks, m.delay, s.Down())
		}
		m.events <- true
		pass(time.Minute)
		want := []string{"0s end web 5", "0s end slow 20", "20s end dns 10", "20s end late 10", "22s let go"}
		if !slices.Equal(m.story, want) || s.Down() == nil {
			t.Errorf("%q, %v", m.story, s.Down())
		}
		m.events <- false // cancels the shutdown
		synctest.Wait()
		if s.Down() != nil || m.locks != 1 {
			t.Errorf("%v, %d locks", s.Down(), m.locks)
		}
	}, pods...)
}

func TestWithoutLogind(t *testing.T) {
	run(t, func(m *machine) { m.fails = 3 }, times(30*time.Second, 0), func(m *machine, _ *Manager) {
		pass(3*retryPeriod + time.Second)
		if m.locks != 1 {
			t.Errorf("%d inhibitors after connecting", m.locks)
		}
	})
	run(t, func(m *machine) { m.fixed = true }, times(30*time.Second, 0), func(m *machine, _ *Manager) {
		if m.locks != 0 {
			t.Error("counts on time that it does not get")
		}
	})
	run(t, nil, times(0, 0), func(m *machine, _ *Manager) {
		if m.locks != 0 {
			t.Error("delays a shutdown without pods to end")
		}
	})
}

func TestGroups(t *testing.T) {
	c := &kubeletconfig.KubeletConfiguration{
		ShutdownGracePeriodByPodPriority: []kubeletconfig.ShutdownGracePeriodByPodPriority{
			{Priority: 1000, ShutdownGracePeriodSeconds: 20}, {Priority: 10, ShutdownGracePeriodSeconds: 10},
			{Priority: critical, ShutdownGracePeriodSeconds: 5},
		}}
	got := ""
	for _, g := range fill(groups(c), []*v1.Pod{podOf("a", -5, 1), podOf("b", 10, 1), podOf("c", 999, 1),
		podOf("d", 1000, 1), podOf("e", critical+1, 1), {ObjectMeta: metav1.ObjectMeta{Name: "f"}}}) {
		got += fmt.Sprint(g.from, g.grace)
		for _, pod := range g.pods {
			got += " " + pod.Name
		}
		got += "; "
	}
	if want := "10 10s a b c f; 1000 20s d; 2000000000 5s e; "; got != want {
		t.Errorf("%s", got)
	}
	if d := total(groups(c)); d != 35*time.Second {
		t.Errorf("%s in all", d)
	}
}
