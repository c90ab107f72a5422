// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// writers is the number of clients that write. Each sends at most five requests per second,
	// because that is client-go's default.
	writers = 4
	// retryPause is how long a writer waits before it repeats a failed request.
	retryPause = 100 * time.Millisecond
	// hopeless is the time after which a writer gives up.
	hopeless = 2 * longestRequest
)

// ledger records the requests of all writers.
type ledger struct {
	u                   *upgrade
	endWrites, endWatch context.CancelFunc
	writing, watching   sync.WaitGroup
	clients             []kubernetes.Interface
	watch               cache.SharedIndexInformer // a watch by a client that does not write

	mu sync.Mutex
	// +guarded by mu
	created map[string]bool // names of ConfigMaps whose creation was acknowledged
	// counters has the last acknowledged number of each counter, which is a ConfigMap.
	counters map[string]int
	last     time.Time // time of the last acknowledged write
	lastOf   map[string]time.Time
	figures
	phase figures // since the last call of look
}

// figures are measurements of the requests of a phase of the test.
type figures struct {
	requests int
	// request is the longest time until a request was completed, including its repetitions. pause is the
	// longest time between two completed writes of any writers, and pauseOfOne that between two of the same
	// writer.
	request, pause, pauseOfOne measured
	errors                     map[string]int
}

// measured is the longest measured time, with a description.
type measured struct {
	d    time.Duration
	what string
}

// or returns the longer one of m and another time.
func (m measured) or(d time.Duration, what string) measured {
	if d > m.d {
		return measured{d, what}
	}
	return m
}

func (m measured) String() string { return fmt.Sprintf("%v (%s)", m.d.Round(time.Millisecond), m.what) }

// startLedger starts the writers, and the watch.
func (u *upgrade) startLedger() *ledger {
	u.t.Helper()
	writing, endWrites := context.WithCancel(u.t.Context())
	watching, endWatch := context.WithCancel(u.t.Context())
	l := &ledger{u: u, endWrites: endWrites, endWatch: endWatch, created: map[string]bool{}, counters: map[string]int{},
		lastOf: map[string]time.Time{}, last: time.Now()}
	u.t.Cleanup(l.stop)
	for range writers + 1 {
		// With a dial function of its own, a client has a connection of its own.
		cfg := rest.CopyConfig(u.rest)
		cfg.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			u.t.Fatal(err)
		}
		l.clients = append(l.clients, client)
	}
	l.watch = informers.NewSharedInformerFactoryWithOptions(l.clients[writers], 0,
		informers.WithNamespace(loadNamespace)).Core().V1().ConfigMaps().Informer()
	l.watching.Go(func() { l.watch.RunWithContext(watching) })
	for i := range writers {
		l.writing.Go(func() { l.write(writing, i) })
	}
	return l
}

// stop ends the writers and the watch, and waits for them.
func (l *ledger) stop() {
	l.endWrites()
	l.endWatch()
	l.writing.Wait()
	l.watching.Wait()
}

func counterName(i int) string { return fmt.Sprintf("counter-%d", i) }

// write creates ConfigMaps, increments a counter, and reads the counters of other writers, until ctx
// ends.
func (l *ledger) write(ctx context.Context, i int) {
	name := counterName(i)
	api := l.clients[i].CoreV1().ConfigMaps(loadNamespace)
	create := func(name string, data map[string]string) *v1.ConfigMap {
		var made *v1.ConfigMap
		l.request(i, "create "+name, true, func(ctx context.Context, again bool) error {
			var err error
			o := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
			made, err = api.Create(ctx, o, metav1.CreateOptions{})
			if again && apierrors.IsAlreadyExists(err) {
				made, err = api.Get(ctx, name, metav1.GetOptions{})
			}
			return err
		})
		return made
	}
	counter := create(name, map[string]string{"n": "0"})
	for n := 1; ctx.Err() == nil && counter != nil; n++ {
		made := fmt.Sprintf("written-%d-%d", i, n)
		if create(made, nil) == nil {
			return
		}
		ok := l.request(i, fmt.Sprintf("update %s to %d", name, n), true, func(ctx context.Context, again bool) error {
			if again {
				now, err := api.Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if counter = now; now.Data["n"] == strconv.Itoa(n) {
					return nil // the write took effect although it was not acknowledged
				}
			}
			next := counter.DeepCopy()
			next.Data["n"] = strconv.Itoa(n)
			now, err := api.Update(ctx, next, metav1.UpdateOptions{})
			if err == nil {
				counter = now
			}
			return err
		})
		if !ok {
			return
		}
		l.mu.Lock()
		l.created[made], l.counters[name] = true, n
		other := counterName((i + 1 + n%(writers-1)) % writers)
		least := l.counters[other]
		l.mu.Unlock()
		if n == 1 {
			continue // the other counter may not have been created yet
		}
		l.request(i, "get "+other, false, func(ctx context.Context, _ bool) error {
			now, err := api.Get(ctx, other, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if have, err := strconv.Atoi(now.Data["n"]); err != nil || have < least {
				l.u.t.Errorf("%v: %s is %q after %d was acknowledged", l.u.at(), other, now.Data["n"], least)
			}
			return nil
		})
	}
}

// request sends a request until it succeeds, and records how long that took. It returns false if the
// request has not succeeded within the time hopeless. The argument again of send is true if the
// request is repeated.
func (l *ledger) request(writer int, what string, write bool, send func(ctx context.Context, again bool) error) bool {
	// The test's context is not used, because a request is completed also when the test ends.
	ctx, cancel := context.WithTimeout(context.Background(), hopeless)
	defer cancel()
	began := time.Now()
	for again := false; ; again = true {
		err := send(ctx, again)
		now := time.Now()
		if err == nil {
			l.done(counterName(writer), what, write, began, now)
			return true
		}
		l.mu.Lock()
		for _, f := range []*figures{&l.figures, &l.phase} {
			if f.errors == nil {
				f.errors = map[string]int{}
			}
			f.errors[reason(err)]++
		}
		l.mu.Unlock()
		if now.Sub(began) > hopeless {
			l.u.t.Errorf("%v: %s: not done after %v: %v", l.u.at(), what, hopeless, err)
			return false
		}
		time.Sleep(retryPause)
	}
}

// done records a completed request.
func (l *ledger) done(writer, what string, write bool, began, now time.Time) {
	at := fmt.Sprintf("%s at %v", what, l.u.at())
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range []*figures{&l.figures, &l.phase} {
		f.requests++
		f.request = f.request.or(now.Sub(began), at)
		if write {
			f.pause = f.pause.or(now.Sub(l.last), at)
			if before, ok := l.lastOf[writer]; ok {
				f.pauseOfOne = f.pauseOfOne.or(now.Sub(before), at)
			}
		}
	}
	if write {
		l.last, l.lastOf[writer] = now, now
	}
}

// reason returns an error's text, shortened so that equal causes have equal texts.
func reason(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return fmt.Sprintf("%d %s", status.Status().Code, status.Status().Reason)
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}

// look logs the figures since the last call.
func (l *ledger) look(phase string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.u.t.Logf("%v: %s: %v", l.u.at(), phase, l.phase)
	l.phase = figures{}
}

func (f figures) String() string {
	return fmt.Sprintf("%d requests, longest request %v, longest pause of all writes %v, of one client's %v, errors %v",
		f.requests, f.request, f.pause, f.pauseOfOne, f.errors)
}

// finish ends the writers and checks that the bounds were kept and that nothing acknowledged is lost.
func (l *ledger) finish() {
	l.u.t.Helper()
	l.endWrites()
	l.writing.Wait()
	f := l.figures
	l.u.t.Logf("in all: %v", f)
	if f.request.d > longestRequest {
		l.u.t.Errorf("longest request: %v, want at most %v", f.request, longestRequest)
	}
	if f.pause.d > longestPause {
		l.u.t.Errorf("longest pause of writes: %v, want at most %v", f.pause, longestPause)
	}
	for i, s := range l.u.servers {
		list, err := s.CoreV1().ConfigMaps(loadNamespace).List(l.u.t.Context(), metav1.ListOptions{})
		if err != nil {
			l.u.t.Fatal(err)
		}
		l.check(fmt.Sprintf("API server %d", i+1), list.Items)
	}
	l.u.eventually("the watch has shown the last writes", func(context.Context) error {
		for name, n := range l.counters {
			if have := numbers(l.watched())[name]; have < n {
				return fmt.Errorf("%s is %d, want %d", name, have, n)
			}
		}
		return nil
	})
	l.check("the watch", l.watched())
	l.stop()
}

// watched returns the ConfigMaps that the watch has shown.
func (l *ledger) watched() []v1.ConfigMap {
	var out []v1.ConfigMap
	for _, o := range l.watch.GetStore().List() {
		if cm, ok := o.(*v1.ConfigMap); ok {
			out = append(out, *cm)
		}
	}
	return out
}

// numbers returns the numbers of the ConfigMaps that are counters, by name. For others it has 0.
func numbers(list []v1.ConfigMap) map[string]int {
	out := map[string]int{}
	for _, cm := range list {
		out[cm.Name], _ = strconv.Atoi(cm.Data["n"]) // 0 if there is no number
	}
	return out
}

// check checks that all acknowledged writes are in a list. The writers must have ended.
func (l *ledger) check(where string, list []v1.ConfigMap) {
	l.u.t.Helper()
	have := numbers(list)
	lost := 0
	for _, name := range slices.Sorted(maps.Keys(l.created)) {
		if _, there := have[name]; !there {
			lost++
			l.u.t.Errorf("%s: %s was acknowledged and is missing", where, name)
		}
	}
	for name, n := range l.counters {
		if have[name] < n {
			lost++
			l.u.t.Errorf("%s: %s is %d after %d was acknowledged", where, name, have[name], n)
		}
	}
	l.u.t.Logf("%s: %d objects and %d counters were acknowledged, %d writes are lost", where, len(l.created),
		len(l.counters), lost)
	if len(l.created) == 0 {
		l.u.t.Errorf("%s: nothing was written", where)
	}
}
