// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// sink is a target that stores events in got. While ill is true, all deliveries fail.
type sink struct {
	mu  sync.Mutex
	ill bool
	bad []string // audit IDs of events that the sink rejects as invalid
	odd []string // audit IDs of events for which the sink returns an internal error
	got []string
	max int // size of the largest batch
}

func (*sink) name() string         { return "sink" }
func (*sink) retry() time.Duration { return time.Second }
func (*sink) senders() int         { return 1 }

func (s *sink) deliver(_ context.Context, events ...*auditapi.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ill {
		return errors.New("ill")
	}
	for _, e := range events {
		if slices.Contains(s.bad, string(e.AuditID)) {
			return fmt.Errorf("sink: %w", apierrors.NewBadRequest("no"))
		}
		if slices.Contains(s.odd, string(e.AuditID)) {
			return fmt.Errorf("sink: %w", apierrors.NewInternalError(errors.New("oops")))
		}
	}
	for _, e := range events {
		s.got = append(s.got, string(e.AuditID))
	}
	s.max = max(s.max, len(events))
	return nil
}

func (s *sink) set(ill bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ill = ill
}

func (s *sink) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func newTestQueue(t *testing.T, s *sink, dir string, files int64) (*queue, *metrics) {
	t.Helper()
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.AuditBatching{Mode: config.AuditBatch, BufferSize: 10, MaxSize: 4, MaxWait: 30 * time.Second}
	return newQueue(s, cfg, newRing(dir, files), Deps{Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)},
		m.of("sink")), m
}

func put(q *queue, from, to int) (ids []string) {
	for i := from; i < to; i++ {
		id := fmt.Sprintf("%04d", i)
		ids = append(ids, id)
		q.ProcessEvents(&auditapi.Event{AuditID: types.UID(id), Stage: auditapi.StageResponseComplete,
			Level: auditapi.LevelMetadata, Verb: "get"})
	}
	return ids
}

// TestQueue checks that a batch is sent when it is full or after MaxWait, and that the order of
// events is kept.
func TestQueue(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{}
		q, _ := newTestQueue(t, s, dir, 1<<20)
		stop := make(chan struct{})
		if err := q.Run(stop); err != nil {
			t.Fatal(err)
		}
		want := put(q, 0, 6)
		synctest.Wait()
		if got := s.taken(); !slices.Equal(got, want[:4]) {
			t.Errorf("at once: %q, want a full batch", got)
		}
		<-time.After(31 * time.Second)
		synctest.Wait()
		if got := s.taken(); !slices.Equal(got, want) {
			t.Errorf("after a while: %q", got)
		}
		want = append(want, put(q, 6, 7)...)
		close(stop)
		q.Shutdown()
		if got := s.taken(); !slices.Equal(got, want) || s.max > 4 {
			t.Errorf("at the end: %q in batches of %d", got, s.max)
		}
	})
}

// TestQueueUnderOverload checks that events are written to disk when memory is full, and that they
// are delivered once the receiver works again.
func TestQueueUnderOverload(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{ill: true}
		q, m := newTestQueue(t, s, dir, 1<<20)
		stop := make(chan struct{})
		if err := q.Run(stop); err != nil {
			t.Fatal(err)
		}
		want := put(q, 0, 100)
		synctest.Wait()
		q.mu.Lock()
		n := len(q.events)
		q.mu.Unlock()
		if n > 10 {
			t.Errorf("%d events in memory", n)
		}
		if n := testutil.ToFloat64(m.spilled.WithLabelValues("sink")); n < 80 {
			t.Errorf("%v events on disk", n)
		}
		<-time.After(5 * time.Minute)
		s.set(false)
		<-time.After(5 * time.Minute)
		synctest.Wait()
		got := s.taken()
		slices.Sort(got) // a batch that was in progress when the receiver failed is delivered after later ones
		if !slices.Equal(got, want) {
			t.Errorf("got %d events, want %d", len(got), len(want))
		}
		if n := testutil.ToFloat64(m.dropped.WithLabelValues("sink")); n != 0 {
			t.Errorf("%v events dropped", n)
		}
		close(stop)
		q.Shutdown()
	})
}

// TestRefusedEvents checks that events that the receiver rejects as invalid are dropped, and that
// all other events are delivered.
func TestRefusedEvents(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{bad: []string{"0002", "0007"}}
		q, m := newTestQueue(t, s, dir, 1<<20)
		stop := make(chan struct{})
		if err := q.Run(stop); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, id := range put(q, 0, 20) {
			if !slices.Contains(s.bad, id) {
				want = append(want, id)
			}
		}
		<-time.After(5 * time.Minute)
		synctest.Wait()
		got := s.taken()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		if n := testutil.ToFloat64(m.dropped.WithLabelValues("sink")); n != 2 {
			t.Errorf("%v events dropped, want 2", n)
		}
		if !q.files.empty() {
			t.Error("files are left")
		}
		close(stop)
		q.Shutdown()
	})
}

// TestErringReceiver checks that events for which the receiver always returns an internal error do
// not delay other events, and are finally dropped and counted.
func TestErringReceiver(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{odd: []string{"0002", "0057", "0140"}}
		q, m := newTestQueue(t, s, dir, 64<<10)
		stop := make(chan struct{})
		if err := q.Run(stop); err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := 0; i < 200; i += 10 {
			for _, id := range put(q, i, i+10) {
				if !slices.Contains(s.odd, id) {
					want = append(want, id)
				}
			}
			<-time.After(time.Second)
		}
		<-time.After(30 * time.Minute)
		synctest.Wait()
		got := s.taken()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("got %d events, want %d: %q", len(got), len(want), got)
		}
		if n := testutil.ToFloat64(m.dropped.WithLabelValues("sink")); n != 3 {
			t.Errorf("%v events dropped, want 3", n)
		}
		if !q.files.empty() || q.files.size != 0 {
			t.Error("files are left")
		}
		close(stop)
		q.Shutdown()
	})
}

// TestReceiverDown checks that no event is dropped while the receiver answers every delivery with
// an error: it may work again later.
func TestReceiverDown(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{}
		q, m := newTestQueue(t, s, dir, 1<<20)
		stop := make(chan struct{})
		if err := q.Run(stop); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		for i := range 100 {
			s.odd = append(s.odd, fmt.Sprintf("%04d", i))
		}
		s.mu.Unlock()
		want := put(q, 0, 100)
		<-time.After(time.Hour)
		s.mu.Lock()
		s.odd = nil
		s.mu.Unlock()
		<-time.After(time.Hour)
		synctest.Wait()
		got := s.taken()
		slices.Sort(got)
		if n := testutil.ToFloat64(m.dropped.WithLabelValues("sink")); n != 0 || !slices.Equal(got, want) {
			t.Errorf("got %d events, %v dropped", len(got), n)
		}
		close(stop)
		q.Shutdown()
	})
}

// TestQueueSurvives checks that a process delivers the events that a former process left on disk.
func TestQueueSurvives(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{ill: true}
		q, _ := newTestQueue(t, s, dir, 1<<20)
		stop := make(chan struct{})
		if err := q.Run(stop); err != nil {
			t.Fatal(err)
		}
		want := put(q, 0, 30)
		close(stop)
		q.Shutdown()
		s.set(false)
		q, _ = newTestQueue(t, s, dir, 1<<20)
		stop = make(chan struct{})
		if err := q.Run(stop); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		close(stop)
		q.Shutdown()
		got := s.taken()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
}

// TestQueueDropsTheOldest checks that a full ring deletes its oldest file, and that the events in
// the file are counted as dropped.
func TestQueueDropsTheOldest(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{ill: true}
		q, m := newTestQueue(t, s, dir, 64<<10)
		want := put(q, 0, 1000)
		dropped := int(testutil.ToFloat64(m.dropped.WithLabelValues("sink")))
		if dropped == 0 || dropped > 900 || q.files.size > 64<<10 {
			t.Fatalf("%d dropped, %d bytes on disk", dropped, q.files.size)
		}
		s.set(false)
		stop := make(chan struct{})
		if err := q.Run(stop); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		close(stop)
		q.Shutdown()
		// The first ten events were in memory. After them come the events in files that were not deleted.
		if got := s.taken(); !slices.Equal(got, slices.Concat(want[:10], want[10+dropped:])) {
			t.Errorf("got %d events, %d dropped", len(got), dropped)
		}
	})
}

// TestWebhook checks that lists of events are posted to the server, and that redirects are not
// followed.
func TestWebhook(t *testing.T) {
	var got []auditv1.EventList
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(got) == 1 {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
			return
		}
		var list auditv1.EventList
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		got = append(got, list)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: "+
		"{cluster: c, user: u}}]\nusers: [{name: u}]\nclusters: [{name: c, cluster: {server: %q}}]\n", server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := newWebhookTarget(&config.AuditWebhook{ConfigFile: file, InitialBackoff: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	events := []*auditapi.Event{{AuditID: "1"}, {AuditID: "2"}}
	if err := w.deliver(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || len(got[0].Items) != 2 || got[0].Items[1].AuditID != "2" {
		t.Errorf("%+v", got)
	}
	if err := w.deliver(t.Context(), events...); err == nil {
		t.Error("events were sent elsewhere")
	}
}
