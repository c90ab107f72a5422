// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// advance waits for d in the virtual time of synctest.
func advance(d time.Duration) { clock.Real().Sleep(d) }

// server is a fake API server with one list of ConfigMaps. It streams lists, as this project's API
// server does.
type server struct {
	mu       sync.Mutex
	revision int
	objects  map[string]*v1.ConfigMap
	watches  []*watch.FakeWatcher
	compact  int   // watches from revisions before this one are rejected as expired
	down     error // if not nil, all requests fail with this error
	noWatch  error // if not nil, all watches fail with this error
	requests int
}

func newServer() *server { return &server{objects: map[string]*v1.ConfigMap{}} }

// List implements Client. Clients that can stream a list do not call it.
func (s *server) List(context.Context, metav1.ListOptions) (*v1.ConfigMapList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	out := &v1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(s.revision)}}
	for _, o := range s.objects {
		out.Items = append(out.Items, *o)
	}
	return out, nil
}

// Watch implements Client.
func (s *server) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.down != nil {
		return nil, s.down
	}
	if s.noWatch != nil {
		return nil, s.noWatch
	}
	stream := o.SendInitialEvents != nil && *o.SendInitialEvents
	from := 0
	if o.ResourceVersion != "" {
		if _, err := fmt.Sscan(o.ResourceVersion, &from); err != nil {
			return nil, err
		}
		if from < s.compact && !stream {
			return nil, apierrors.NewResourceExpired("too old resource version")
		}
	}
	w := watch.NewFakeWithChanSize(1000, false)
	switch {
	case stream:
		for _, o := range s.objects {
			w.Add(o.DeepCopy())
		}
		w.Action(watch.Bookmark, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: fmt.Sprint(s.revision), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}})
	case from != s.revision:
		return nil, apierrors.NewResourceExpired("this fake keeps no history")
	}
	s.watches = append(s.watches, w)
	return w, nil
}

// set writes the object with the given name, or deletes it if data is empty. All watches receive
// the event.
func (s *server) set(name, data string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	old := s.objects[name]
	event := watch.Event{Type: watch.Added}
	switch {
	case data == "" && old == nil:
		return
	case data == "":
		delete(s.objects, name)
		event = watch.Event{Type: watch.Deleted, Object: old.DeepCopy()}
		event.Object.(*v1.ConfigMap).ResourceVersion = fmt.Sprint(s.revision)
	default:
		o := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: name, ResourceVersion: fmt.Sprint(s.revision), UID: types.UID(name),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		}, Data: map[string]string{"k": data}}
		s.objects[name] = o
		event.Object = o.DeepCopy()
		if old != nil {
			event.Type = watch.Modified
		}
	}
	for _, w := range s.watches {
		w.Action(event.Type, event.Object)
	}
}

// interrupt ends all watches. If err is not nil, all requests fail with err from now on; if it is
// nil, requests succeed again.
func (s *server) interrupt(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = err
	for _, w := range s.watches {
		w.Stop()
	}
	s.watches = nil
}

// expire makes watches from all revisions up to the present one fail as expired.
func (s *server) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	s.compact = s.revision
}

func (s *server) data() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for name, o := range s.objects {
		out[name] = o.Data["k"]
	}
	return out
}

// follower is a running cache of the data of ConfigMaps.
type follower struct {
	*Cache[v1.ConfigMap, string]
	log  bytes.Buffer
	seen map[string]string // the objects as the calls of Changed have reported them
	stop func()
}

func newFollower(t interface{ Errorf(string, ...any) }, source cache.ListerWatcher) *follower {
	f := &follower{seen: map[string]string{}}
	f.Cache = NewCache(Config[v1.ConfigMap, string]{
		Source: source, Clock: clock.Real(), Versions: true,
		Log: slog.New(slog.NewTextHandler(&f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Keep: func(c *v1.ConfigMap) *string {
			if len(c.ManagedFields) > 0 {
				t.Errorf("managed fields of %s were not dropped", c.Name)
			}
			if c.Data["k"] == "ignored" {
				return nil
			}
			data := c.Data["k"]
			return &data
		},
		Changed: func(name types.NamespacedName, old, current *string) {
			was, known := f.seen[name.Name]
			if known != (old != nil) || known && was != *old {
				t.Errorf("%s changed from %v, but was %q", name.Name, old, was)
			}
			if got := f.Get(name); got != current {
				t.Errorf("Changed was called for %s before the cache had the change", name.Name)
			}
			delete(f.seen, name.Name)
			if current != nil {
				f.seen[name.Name] = *current
			}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { f.Run(ctx); close(done) }()
	f.stop = func() { cancel(); <-done }
	return f
}

func (f *follower) synced() bool {
	select {
	case <-f.Synced():
		return true
	default:
		return false
	}
}

func (f *follower) data() map[string]string {
	out := map[string]string{}
	for name, data := range f.All() {
		out[name.Name] = *data
	}
	return out
}

// check compares the contents of the cache, and what Changed has reported, with want.
func (f *follower) check(t interface {
	Helper()
	Errorf(string, ...any)
}, want map[string]string) {
	t.Helper()
	want = maps.Clone(want)
	maps.DeleteFunc(want, func(_, data string) bool { return data == "ignored" })
	if d := cmp.Diff(want, f.data()); d != "" {
		t.Errorf("cache (-want +got):\n%s", d)
	}
	if d := cmp.Diff(want, f.seen); d != "" {
		t.Errorf("reported (-want +got):\n%s", d)
	}
}

// TestInterruptions checks that a cache has all changes after a watch has ended, for each way in
// which it can end.
func TestInterruptions(t *testing.T) {
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	internal := apierrors.NewInternalError(errors.New("x"))
	change := func(s *server) { s.set("a", "2"); s.set("b", ""); s.set("c", "1"); s.set("d", "ignored") }
	for name, interrupt := range map[string]func(s *server){
		"none":                        change,
		"watch ends":                  func(s *server) { change(s); s.interrupt(nil) },
		"changes between two watches": func(s *server) { s.interrupt(nil); change(s) },
		"resource version expires":    func(s *server) { s.interrupt(nil); change(s); s.expire() },
		"API server restarts": func(s *server) {
			s.interrupt(refused)
			change(s)
			advance(time.Minute)
			s.interrupt(nil)
		},
		"API server rejects requests": func(s *server) {
			s.interrupt(apierrors.NewForbidden(v1.Resource("configmaps"), "", nil))
			change(s)
			advance(time.Hour)
			s.interrupt(nil)
		},
		"API server has internal error": func(s *server) { s.interrupt(internal); change(s); s.interrupt(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.set("a", "1")
				s.set("b", "1")
				f := newFollower(t, Source(s))
				defer f.stop()
				synctest.Wait()
				f.check(t, s.data())
				interrupt(s)
				advance(2 * lastDelay)
				synctest.Wait()
				f.check(t, s.data())
				if got := f.Len(); got != len(f.data()) {
					t.Errorf("Len is %d", got)
				}
			})
		})
	}
}

// TestStartBeforeTheServer starts a cache before the API server. The cache must be synced soon
// after the server has started, and not before.
func TestStartBeforeTheServer(t *testing.T) {
	for name, err := range map[string]error{
		"refused":   fmt.Errorf("dial: %w", syscall.ECONNREFUSED),
		"forbidden": apierrors.NewForbidden(v1.Resource("configmaps"), "", nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.set("a", "1")
				s.interrupt(err)
				f := newFollower(t, Source(s))
				defer f.stop()
				const outage = 10 * time.Second
				advance(outage)
				if f.synced() {
					t.Fatal("synced without a server")
				}
				s.interrupt(nil)
				advance(outage)
				synctest.Wait()
				if !f.synced() {
					t.Fatalf("not synced %v after an outage of %v", outage, outage)
				}
				f.check(t, s.data())
			})
		})
	}
}

// TestBackoff checks that a cache sends few requests while requests fail for a long time, and that
// repeated failures are logged as warnings.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		f := newFollower(t, Source(s))
		advance(time.Second)
		synctest.Wait()
		before := s.requests
		s.interrupt(apierrors.NewForbidden(v1.Resource("configmaps"), "", nil))
		advance(time.Hour)
		f.stop()
		requests := s.requests - before
		if least, most := int(time.Hour/lastDelay)/2, int(time.Hour/lastDelay)+20; requests < least || requests > most {
			t.Errorf("%d requests in an hour, want %d to %d", requests, least, most)
		}
		f.checkLevels(t)
	})
}

// TestRelist checks that Relist makes a cache list again at once, while it watches as well as while it
// waits after a failure.
func TestRelist(t *testing.T) {
	for name, err := range map[string]error{
		"watching":  nil,
		"refused":   fmt.Errorf("dial: %w", syscall.ECONNREFUSED),
		"forbidden": apierrors.NewForbidden(v1.Resource("configmaps"), "", nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.set("a", "1")
				f := newFollower(t, Source(s))
				defer f.stop()
				advance(time.Second)
				if err != nil {
					s.interrupt(err)
					advance(10 * time.Minute)
				}
				synctest.Wait()
				before := s.requests
				s.mu.Lock()
				s.down = nil
				s.mu.Unlock()
				s.set("b", "1")
				if v := fmt.Sprint(s.revision); err != nil && f.AtLeast(v) {
					t.Errorf("has revision %s before the list", v)
				}
				f.Relist()
				synctest.Wait()
				if s.requests == before {
					t.Error("no request")
				}
				f.check(t, s.data())
				if v := fmt.Sprint(s.revision); !f.AtLeast(v) {
					t.Errorf("does not have revision %s after the list", v)
				}
			})
		})
	}
}

// TestStartDelay checks that the first list of a cache is complete soon after the API server has
// started, even if the cache has waited for a long time.
func TestStartDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.interrupt(fmt.Errorf("dial: %w", syscall.ECONNREFUSED))
		f := newFollower(t, Source(s))
		advance(time.Hour)
		s.interrupt(nil)
		began := time.Now()
		<-f.Synced()
		if took := time.Since(began); took > 2*startDelay {
			t.Errorf("complete %v after the API server had started", took)
		}
		f.stop()
	})
}

// TestWatchFails checks that if all watches fail, this is logged as a warning, although lists
// succeed.
func TestWatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.noWatch = apierrors.NewForbidden(v1.Resource("configmaps"), "", nil)
		f := newFollower(t, Source(s))
		advance(time.Hour)
		f.stop()
		f.checkLevels(t)
	})
}

// checkLevels checks that the first quietFailures failures are logged at debug level, and all later
// ones as warnings.
func (f *follower) checkLevels(t *testing.T) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(f.log.String()), "\n")
	if len(lines) <= quietFailures {
		t.Fatalf("%d failures logged", len(lines))
	}
	for i, line := range lines {
		level := "DEBUG"
		if i >= quietFailures {
			level = "WARN"
		}
		if !strings.Contains(line, "level="+level+` msg="Failed to watch" type=*v1.ConfigMap err=`) {
			t.Fatalf("line %d is not at level %s: %s", i, level, line)
		}
	}
}

// TestStop checks that Run returns at once when its context is canceled, even while it waits for
// the next attempt.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.interrupt(fmt.Errorf("dial: %w", syscall.ECONNREFUSED))
		f := newFollower(t, Source(s))
		advance(10 * time.Minute)
		synctest.Wait()
		began := time.Now()
		f.stop()
		if took := time.Since(began); took > 0 {
			t.Errorf("stopped after %v", took)
		}
		if f.synced() {
			t.Error("synced without a server")
		}
	})
}

// slowList is a server that sends each event of a list after a pause of step.
type slowList struct {
	*server
	step time.Duration
}

func (s slowList) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	from, err := s.server.Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	return watch.Filter(from, func(e watch.Event) (watch.Event, bool) {
		advance(s.step)
		return e, true
	}), nil
}

// TestChangeWhileSyncing checks that a cache is empty until a slow list is complete, and that the
// changes during the list are not lost.
func TestChangeWhileSyncing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		for i := range 10 {
			s.set(fmt.Sprint("o", i), "1")
		}
		f := newFollower(t, Source(slowList{s, time.Second}))
		advance(5500 * time.Millisecond)
		s.set("o1", "2")
		s.set("o2", "")
		s.set("new", "1")
		synctest.Wait()
		if len(f.All()) > 0 || f.synced() {
			t.Errorf("half a list is visible: %v", f.data())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := Wait(ctx, f); err == nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait returned %v before the list was complete", err)
		}
		advance(time.Minute)
		synctest.Wait()
		if err := Wait(t.Context(), f); err != nil {
			t.Error(err)
		}
		f.check(t, s.data())
		f.stop()
	})
}

// TestRandom makes random changes and failures of a server, and checks that a cache afterwards has
// the same objects as the server.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		type step struct {
			do         int
			name, data string
			pause      time.Duration
		}
		steps := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) step {
			return step{
				do: rapid.IntRange(0, 9).Draw(r, "do"), name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "name"),
				data:  rapid.SampledFrom([]string{"", "1", "2", "ignored"}).Draw(r, "data"),
				pause: time.Duration(rapid.IntRange(0, 40000).Draw(r, "ms")) * time.Millisecond,
			}
		}), 0, 30).Draw(r, "steps")
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			f := newFollower(r, Source(s))
			defer f.stop()
			for _, x := range steps {
				switch x.do {
				case 0:
					s.interrupt(nil)
				case 1:
					s.interrupt(fmt.Errorf("dial: %w", syscall.ECONNREFUSED))
				case 2:
					s.interrupt(apierrors.NewTooManyRequests("later", 1))
				case 3:
					s.expire()
				case 4:
					advance(x.pause)
				default:
					s.set(x.name, x.data)
				}
			}
			s.interrupt(nil)
			advance(5 * time.Minute)
			synctest.Wait()
			f.check(r, s.data())
		})
	})
}

// TestReplaceOrder checks the calls of Changed one by one. A list after an interruption must be
// reported as changes of the objects that the cache had before.
func TestReplaceOrder(t *testing.T) {
	var got []string
	c := NewCache(Config[v1.ConfigMap, v1.ConfigMap]{
		Keep: func(c *v1.ConfigMap) *v1.ConfigMap { return c },
		Changed: func(name types.NamespacedName, old, current *v1.ConfigMap) {
			text := name.Name
			for _, o := range []*v1.ConfigMap{old, current} {
				if o == nil {
					text += " -"
					continue
				}
				text += " " + o.ResourceVersion
			}
			got = append(got, text)
		},
	})
	of := func(name, version string) *v1.ConfigMap {
		return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}}
	}
	streamed, err := c.Transformer()(of("c", "3"))
	for _, err := range []error{
		err,
		c.Replace([]any{of("a", "1"), of("b", "2"), streamed}, "3"),
		c.Add(of("d", "4")), c.Update(of("a", "5")), c.Delete(of("b", "6")), c.Delete(of("unknown", "7")),
		c.Replace([]any{of("a", "9"), of("c", "3")}, "9"), c.Resync(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"a - 1", "b - 2", "c - 3", "d - 4", "a 1 5", "b 2 -", "a 5 9", "c 3 3", "d 4 -"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error("calls (-want +got):\n", d)
	}
	for name, err := range map[string]error{
		"another kind": c.Add(&v1.Node{}), "not an object": c.Add("text"), "deletion of no object": c.Delete("text"),
		"list with another kind": c.Replace([]any{&v1.Node{}}, ""),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestSelectors checks that the options Named and Fields send their field selectors to the API
// server, both in lists and in watches.
func TestSelectors(t *testing.T) {
	var got []string
	for _, option := range []func(*metav1.ListOptions){Named("n1"), Fields("spec.nodeName=n1")} {
		record := recorder{&got}
		lw := cache.ToListerWatcherWithContext(Source(record, option))
		if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"metadata.name=n1", "metadata.name=n1", "spec.nodeName=n1", "spec.nodeName=n1"}
	if !slices.Equal(got, want) {
		t.Errorf("selectors %q, want %q", got, want)
	}
}

type recorder struct{ selectors *[]string }

func (r recorder) List(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	*r.selectors = append(*r.selectors, o.FieldSelector)
	return &v1.ConfigMapList{}, nil
}

func (r recorder) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	*r.selectors = append(*r.selectors, o.FieldSelector)
	return watch.NewEmptyWatch(), nil
}
