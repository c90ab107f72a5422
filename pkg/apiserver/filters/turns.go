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
	// largeList is the minimum size in bytes of a list that must take turns with other lists of its
	// user. A smaller list takes less time than arranging a turn.
	largeList = 256 << 10
	// slowReader is how long no turn may have begun before the next turn begins although all are
	// taken: the running lists then wait for their readers and not for the processor.
	slowReader = time.Second
	// maxLine is the maximum number of waiting lists of a user.
	maxLine = 1000
)

var errLineFull = errors.New("too many lists are waiting")

// turns limits how many large lists of a user run at once. Priority and fairness has enough seats
// for requests that mostly wait. A large list uses a processor all the time. If lists took all
// seats, a small request of another user would get one hundredth of a processor.
type turns struct {
	limit int // maximum number of concurrent lists of one user
	clock clock.Clock

	mu    sync.Mutex
	lines map[string]*line // lines by user; lines without lists are removed
}

// line is the running and waiting lists of one user.
type line struct {
	running int
	waiting []chan struct{} // one channel for each waiting list, closed when its turn begins
	last    time.Time       // when the last turn began
}

func newTurns(processors int, clk clock.Clock) *turns {
	return &turns{limit: max(1, processors/2), clock: clk, lines: map[string]*line{}}
}

// take waits for a turn of user. The caller ends it with the returned function.
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

// overtake begins a turn early if no turn has begun for slowReader, and reports whether it did.
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

// leave stops waiting for a turn.
func (t *turns) leave(ctx context.Context, user string, l *line, turn chan struct{}) error {
	t.mu.Lock()
	if i := slices.Index(l.waiting, turn); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		t.mu.Unlock()
		return ctx.Err()
	}
	t.mu.Unlock()
	t.end(user, l) // the turn has begun already, so end it
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
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, &options, nil); err == nil &&
		options.Limit > 0 && options.Limit < n {
		bytes = bytes / n * options.Limit
	}
	return bytes >= largeList
}
