// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/api/clock"
)

const (
	// largeList is how many bytes a list has that takes turns with others of its
	// user. A smaller one is over sooner than a turn is arranged.
	largeList = 256 << 10
	// slowReader is after how long the next list goes on although none has ended:
	// those before it wait for their readers, and not for the processor.
	slowReader = time.Second
	// maxLine is how many lists of one user may wait.
	maxLine = 1000
)

var errLineFull = errors.New("too many lists are waiting")

// turns has the large lists of each user take turns. Seats share a server between
// requests that wait for something; but a large list computes all the time, and as
// many as there are seats for would leave a small request of somebody else the
// hundredth part of a processor.
type turns struct {
	limit int // lists of one user at once
	clock clock.Clock

	mu    sync.Mutex
	lines map[string]*line // by user; none is idle
}

// line is of one user.
type line struct {
	running int
	waiting []chan struct{} // closed when it is their turn
	last    time.Time       // of the last turn
}

func newTurns(processors int, clk clock.Clock) *turns {
	return &turns{limit: max(1, processors/2), clock: clk, lines: map[string]*line{}}
}

// take waits for a turn of user, which ends with the function it returns.
func (t *turns) take(ctx context.Context, user string) (end func(), err error) {
	t.mu.Lock()
	l := t.lines[user]
	if l == nil {
		l = &line{}
		t.lines[user] = l
	}
	end = func() { t.end(user, l) }
	if l.running < t.limit {
		l.begin(t.clock.Now())
		t.mu.Unlock()
		return end, nil
	}
	if len(l.waiting) >= maxLine {
		t.mu.Unlock()
		return nil, errLineFull
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	t.mu.Unlock()
	return end, t.wait(ctx, user, l, turn)
}

func (l *line) begin(now time.Time) { l.running, l.last = l.running+1, now }

func (t *turns) wait(ctx context.Context, user string, l *line, turn chan struct{}) error {
	for {
		timer := t.clock.NewTimer(slowReader)
		select {
		case <-turn:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return t.leave(ctx, user, l, turn)
		case <-timer.C():
			if t.overtake(l, turn) {
				return nil
			}
		}
	}
}

// overtake begins a turn out of turn when nothing has moved for a while.
func (t *turns) overtake(l *line, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if len(l.waiting) == 0 || l.waiting[0] != turn || now.Sub(l.last) < slowReader {
		return false
	}
	l.waiting = l.waiting[1:]
	l.begin(now)
	return true
}

// leave gives up waiting.
func (t *turns) leave(ctx context.Context, user string, l *line, turn chan struct{}) error {
	t.mu.Lock()
	if i := slices.Index(l.waiting, turn); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		t.mu.Unlock()
		return ctx.Err()
	}
	t.mu.Unlock()
	t.end(user, l) // the turn came at the last moment
	return ctx.Err()
}

func (t *turns) end(user string, l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.running--
	if len(l.waiting) > 0 && l.running < t.limit {
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
		l.begin(t.clock.Now())
	}
	if l.running == 0 && len(l.waiting) == 0 {
		delete(t.lines, user)
	}
}

// large reports whether r is a list that has to take turns.
func (f *fairness) large(r *http.Request, info *request.RequestInfo) bool {
	if info.Verb != "list" || !info.IsResourceRequest || info.Name != "" {
		return false
	}
	resource := info.Resource
	if info.APIGroup != "" {
		resource += "." + info.APIGroup
	}
	n, bytes, ok := f.cfg.Fairness.Objects(resource)
	if !ok || bytes < largeList {
		return false
	}
	query, options := r.URL.Query(), metav1.ListOptions{}
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, &options, nil); err == nil && options.Limit > 0 && options.Limit < n {
		bytes = bytes / n * options.Limit
	}
	return bytes >= largeList
}
