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
	// largeList is the minimum size, in bytes, of a list that must wait for a turn. Smaller lists take
	// less time than arranging a turn.
	largeList = 256 << 10
	// slowReader is how long the first waiting list waits after the last turn began. Then it gets a
	// turn even if the limit is reached: the running lists take so long that they must be waiting for
	// their clients, and not using a processor.
	slowReader = time.Second
	// maxLine is the maximum number of waiting lists of one user.
	maxLine = 1000
)

var errLineFull = errors.New("too many lists are waiting")

// turns limits how many large lists of one user run at once. A list has a turn while it runs. This
// limit is needed because the seats of priority and fairness are for requests that mostly wait, and
// a large list uses a processor all the time. If large lists of one user took all seats, a small
// request of another user would get one hundredth of a processor.
type turns struct {
	limit int // maximum number of lists of one user that run at once
	clock clock.Clock

	mu    sync.Mutex
	lines map[string]*line // by user; users without running or waiting lists are removed
}

// line has the running and waiting lists of one user.
type line struct {
	running int
	waiting []chan struct{} // one channel for each waiting list, in order; closed when its turn begins
	last    time.Time       // when the last turn began
}

func newTurns(processors int, clk clock.Clock) *turns {
	return &turns{limit: max(1, processors/2), clock: clk, lines: map[string]*line{}}
}

// take waits for a turn of user. When the list has run, the caller ends the turn by the returned
// function.
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

// overtake begins the turn of a waiting list although the limit is reached, if it is the first in
// the line and no turn has begun for slowReader. It reports whether it did so.
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

// leave removes a list whose context is done from the line. It returns the error of the context.
func (t *turns) leave(ctx context.Context, user string, l *line, turn chan struct{}) error {
	t.mu.Lock()
	if i := slices.Index(l.waiting, turn); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		t.mu.Unlock()
		return ctx.Err()
	}
	t.mu.Unlock()
	t.end(user, l) // the turn has begun in the meantime, so end it
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

// large reports whether r is a list of at least largeList bytes, by the size of the cached objects.
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
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, &options, nil); err == nil &&
		options.Limit > 0 && options.Limit < n {
		bytes = bytes / n * options.Limit
	}
	return bytes >= largeList
}
