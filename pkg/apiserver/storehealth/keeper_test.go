// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storehealth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/apiserver/store/kv/memory"
)

// quota is that of the etcd of the tests. It is so small that a test can exceed it quickly.
const quota = 32 * mib

// harness is an embedded etcd with a keeper.
type harness struct {
	*Keeper
	etcd    *etcd.Store
	notices []Notice
}

func newHarness(t *testing.T, policy Policy) *harness {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	db, err := embedded.Start(t.Context(), etcd.Embedded{Dir: t.TempDir(), QuotaBytes: quota, UnsafeNoFsync: true,
		LeaseReuse: 60, Clock: clock.Real(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	h := &harness{etcd: db}
	h.Keeper = New(Config{
		Name: "etcd-0", Maintenance: db, KV: db, Root: "/registry/", LockKey: "/lock", Holder: "a", Policy: policy,
		Interval: ObserveInterval, Locate: locateTest,
		Notify: func(_ context.Context, n Notice) error {
			h.notices = append(h.notices, n)
			return nil
		},
		Metrics: NewMetrics(prometheus.NewRegistry()), Clock: clock.Real(), Log: log,
	})
	return h
}

// locateTest is the Locator for keys /registry/RESOURCE/NAMESPACE/NAME.
func locateTest(key string) (resource, namespace string) {
	parts := strings.Split(key, "/")
	if len(parts) < 5 {
		return strings.Clone(parts[2]), ""
	}
	return strings.Clone(parts[2]), strings.Clone(parts[3])
}

// put writes a value of a size to a key that does not exist, and returns the error.
func (h *harness) put(t *testing.T, key string, size int) error {
	t.Helper()
	res, err := h.etcd.Put(t.Context(), key, make([]byte, size), 0, 0)
	if err == nil && !res.OK {
		t.Fatalf("%s exists", key)
	}
	return err
}

// deleteAll deletes all keys with a prefix.
func (h *harness) deleteAll(t *testing.T, prefix string) {
	t.Helper()
	all, err := h.etcd.Range(t.Context(), kv.RangeOptions{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range all.Items {
		if res, err := h.etcd.Delete(t.Context(), item.Key, item.ModRevision); err != nil || !res.OK {
			t.Fatalf("delete %s: %v, %v", item.Key, res.OK, err)
		}
	}
}

// maintainUntil calls Maintain until the function done returns true. Meanwhile it writes as nodes do with
// their leases, because etcd only counts the pages that a compaction has freed when it commits again.
func (h *harness) maintainUntil(t *testing.T, done func() bool) {
	t.Helper()
	for i := 0; !done(); i++ {
		if err := h.put(t, fmt.Sprint("/lease/", i), 1); err != nil && !etcd.IsNoSpace(err) {
			t.Fatal(err)
		}
		if err := h.Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecoversFromNoSpace fills a database until etcd raises its alarm, so that it rejects all writes
// but deletes. When objects have been deleted, the keeper makes etcd accept writes again.
func TestRecoversFromNoSpace(t *testing.T) {
	h := newHarness(t, usual)
	var err error
	for i := 0; err == nil; i++ {
		err = h.put(t, fmt.Sprintf("/registry/configmaps/big/%d", i), mib)
	}
	if !etcd.IsNoSpace(err) {
		t.Fatal("etcd rejects a write with another error: ", err)
	}
	if err := h.Maintain(t.Context()); err != nil {
		t.Fatal("without anything to free: ", err)
	}
	if h.Level() != Full {
		t.Errorf("level %v with the alarm, want %v", h.Level(), Full)
	}
	if err := h.put(t, "/registry/configmaps/big/small", 1); !etcd.IsNoSpace(err) {
		t.Error("etcd accepts a write although the alarm is on: ", err)
	}
	h.deleteAll(t, "/registry/")
	h.maintainUntil(t, func() bool { return h.put(t, "/registry/configmaps/big/small", 1) == nil })
	members, err := h.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if h.Level() != Ample || members[0].NoSpace || members[0].Size > quota/2 {
		t.Errorf("afterwards: level %v, %+v", h.Level(), members[0])
	}
	if err := h.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(h.notices) != 2 || h.notices[0].Level != Full || h.notices[1].Level != Ample {
		t.Errorf("notices: %+v", h.notices)
	}
}

// TestLevels fills a database through the keeper's levels, and checks what the keeper admits and says.
func TestLevels(t *testing.T) {
	h := newHarness(t, Policy{Warn: 30, Refuse: 60, Defragment: true})
	fill := func(namespace string, level Level) {
		t.Helper()
		for i := 0; h.Level() < level; i++ {
			if err := h.put(t, fmt.Sprintf("/registry/secrets/%s/%d-%d", namespace, level, i), mib/4); err != nil {
				t.Fatal(err)
			}
			// A compaction makes etcd commit its database, so that the size is up to date.
			revision, err := h.etcd.Revision(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := h.etcd.CompactNow(t.Context(), revision); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Observe(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	pod := store.Growth{Resource: corev1.Resource("pods"), New: 100}
	fill("first", Warning)
	if err := h.Admit(t.Context(), pod); err != nil {
		t.Error("refused at the level Warning: ", err)
	}
	if err := h.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	fill("second", Refusing)
	err := h.Admit(t.Context(), pod)
	if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds != 1 {
		t.Errorf("at the level Refusing: %v, retry after %d", err, seconds)
	}
	own := request.WithUser(t.Context(), &user.DefaultInfo{Name: user.APIServerUser})
	if err := h.Admit(own, pod); err != nil {
		t.Error("the server's own write is refused: ", err)
	}
	if err := h.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, n := range h.notices {
		said = append(said, fmt.Sprint(n.Level, " ", n.Namespace))
	}
	if got := strings.Join(said, ", "); got != "Warning first, Refusing second" {
		t.Errorf("notices %s, want the namespaces that have grown", got)
	}
	h.deleteAll(t, "/registry/")
	h.maintainUntil(t, func() bool { return h.Admit(t.Context(), pod) == nil })
}

// TestLock checks that two servers never have the lock at once, and that the lock of a dead server is
// taken over.
func TestLock(t *testing.T) {
	h := newHarness(t, usual)
	a, again := &lock{kv: h.etcd, key: "/l", holder: "a"}, &lock{kv: h.etcd, key: "/l", holder: "a"}
	b := &lock{kv: h.etcd, key: "/l", holder: "b"}
	acquires := func(l *lock, want bool) {
		t.Helper()
		if got, err := l.acquire(t.Context()); (got == held) != want || err != nil {
			t.Fatalf("%s acquires: %v, %v", l.holder, got, err)
		}
	}
	release := func(l *lock) {
		t.Helper()
		if err := l.release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	acquires(a, true)
	acquires(b, false)
	release(b) // b does not hold it
	acquires(b, false)
	acquires(again, true) // a has started again
	release(again)
	acquires(b, true)
	for range staleAfter {
		acquires(a, false)
	}
	acquires(a, true) // b is dead
	release(b)        // b is not, but it has lost the lock
	acquires(b, false)
}

// TestMeasure checks the usage of a database that needs several pages.
func TestMeasure(t *testing.T) {
	h := newHarness(t, usual)
	const n = 10*firstPage + 1
	for i := range n {
		if err := h.put(t, fmt.Sprintf("/registry/pods/ns%d/%03d", i%2, i), 1000); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.put(t, "/registry/nodes/n", 5000); err != nil {
		t.Fatal(err)
	}
	usage, err := measure(t.Context(), h.etcd, "/registry/", locateTest)
	if err != nil {
		t.Fatal(err)
	}
	const podKey, nodeKey = int64(len("/registry/pods/ns0/000")), int64(len("/registry/nodes/n"))
	if usage.Keys != n+1 || usage.Bytes != n*(1000+podKey)+5000+nodeKey || usage.Incomplete {
		t.Errorf("usage: %d keys, %d bytes, incomplete %t", usage.Keys, usage.Bytes, usage.Incomplete)
	}
	if len(usage.Namespaces) != 2 || usage.Namespaces[0].Name != "ns0" || usage.Namespaces[0].Keys != n/2+1 {
		t.Errorf("namespaces: %+v", usage.Namespaces)
	}
	if len(usage.Resources) != 2 || usage.Resources[0].Name != "pods" || usage.Resources[1].Bytes != 5000+nodeKey {
		t.Errorf("resources: %+v", usage.Resources)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if usage, err := measure(gone, h.etcd, "/registry/", locateTest); err == nil || !usage.Incomplete {
		t.Errorf("a measurement that ends early is complete: %+v, %v", usage, err)
	}
}

// fakeMembers are three members of etcd whose defragmentations the test observes.
type fakeMembers struct {
	end       func() error // called at the end of each defragmentation; may be nil
	compacted []int64

	mu      sync.Mutex
	members []etcd.Member
	running int
	order   []uint64
	most    int // largest number of defragmentations at once
}

func (f *fakeMembers) Members(context.Context) ([]etcd.Member, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.members), nil
}

func (f *fakeMembers) Defragment(_ context.Context, m etcd.Member) error {
	f.mu.Lock()
	f.running++
	f.most = max(f.most, f.running)
	f.mu.Unlock()
	runtime.Gosched() // let the other keepers run
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	f.order = append(f.order, m.ID)
	f.members[m.ID-1].Size = m.InUse
	if f.end != nil {
		return f.end()
	}
	return nil
}

func (*fakeMembers) Disarm(context.Context) error { return nil }

func (f *fakeMembers) CompactNow(_ context.Context, revision int64) error {
	f.compacted = append(f.compacted, revision)
	return nil
}

// newFake returns three members that need a defragmentation. The first one is the leader.
func newFake() *fakeMembers {
	fake := &fakeMembers{}
	for id := range uint64(3) {
		m := etcd.Member{ID: id + 1, Leader: id == 0, Size: gib, InUse: gib / 4, Quota: 8 * gib}
		fake.members = append(fake.members, m)
	}
	return fake
}

// keeper returns a keeper of the members.
func (f *fakeMembers) keeper(db kv.Store, holder string) *Keeper {
	return New(Config{
		Name: "etcd-0", Maintenance: f, KV: db, Root: "/registry/", LockKey: "/lock", Holder: holder,
		Policy: usual, Locate: locateTest, Notify: func(context.Context, Notice) error { return nil },
		Metrics: NewMetrics(prometheus.NewRegistry()), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
	})
}

// TestInterruptedDefragmentation checks that the lock stays if etcd may still defragment a member, and that
// it is released otherwise, even if the server stops meanwhile.
func TestInterruptedDefragmentation(t *testing.T) {
	for err, want := range map[error]holding{
		nil: held, errors.New("refused"): held, context.Canceled: elsewhere,
		fmt.Errorf("etcd: %w", context.DeadlineExceeded): elsewhere,
	} {
		ctx, stop := context.WithCancel(t.Context())
		fake, db := newFake(), memory.New(clock.Real())
		fake.end = func() error { stop(); return err }
		_ = fake.keeper(db, "a").Maintain(ctx)
		other := lock{kv: db, key: "/lock", holder: "b"}
		if got, lockErr := other.acquire(t.Context()); got != want || lockErr != nil {
			t.Errorf("after %v, another server gets %v (%v), want %v", err, got, lockErr, want)
		}
		stop()
	}
}

// TestCompactsDuringAlarm checks that the history is compacted while the alarm is on, also if the server
// refuses no writes.
func TestCompactsDuringAlarm(t *testing.T) {
	for _, alarm := range []bool{false, true} {
		fake := newFake()
		fake.members[1].NoSpace, fake.members[1].Revision = alarm, 7
		k := fake.keeper(memory.New(clock.Real()), "a")
		k.Policy = Policy{Defragment: true}
		for range 2 { // the first call only notes the revision
			if err := k.Maintain(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := slices.Equal(fake.compacted, []int64{7}); got != alarm {
			t.Errorf("alarm %t: compacted at %v", alarm, fake.compacted)
		}
	}
}

// TestSteady checks that no member is defragmented while another part of the server prevents it.
func TestSteady(t *testing.T) {
	fake := newFake()
	k := fake.keeper(memory.New(clock.Real()), "a")
	k.Steady.Lock()
	if err := k.Maintain(t.Context()); err != nil || len(fake.order) > 0 {
		t.Errorf("defragmented %v (%v)", fake.order, err)
	}
	k.Steady.Unlock()
	if err := k.Maintain(t.Context()); err != nil || len(fake.order) != 1 {
		t.Errorf("afterwards, defragmented %v (%v)", fake.order, err)
	}
}

// TestNoticeIsTriedAgain checks that a notice that could not be delivered is tried again with the same
// text, and is not repeated once it is delivered.
func TestNoticeIsTriedAgain(t *testing.T) {
	fake := newFake()
	fake.members[0].InUse = 7 * gib
	k := fake.keeper(memory.New(clock.Real()), "a")
	lost := errors.New("no space")
	var said []Notice
	k.Notify = func(_ context.Context, n Notice) error {
		said = append(said, n)
		if len(said) == 1 {
			return lost
		}
		return nil
	}
	if err := k.Maintain(t.Context()); !errors.Is(err, lost) {
		t.Error("the error is not reported: ", err)
	}
	for range 2 {
		if err := k.Maintain(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if len(said) != 2 || said[0] != said[1] || said[1].Level != Warning {
		t.Errorf("notices: %+v", said)
	}
}

// pages is a database that records the limits of its Range requests.
type pages struct {
	kv.Store
	limits []int64
}

func (p *pages) Range(ctx context.Context, opts kv.RangeOptions) (kv.RangeResult, error) {
	p.limits = append(p.limits, opts.Limit)
	return p.Store.Range(ctx, opts)
}

// TestMeasureBoundsPages checks how many keys a measurement reads at once.
func TestMeasureBoundsPages(t *testing.T) {
	db := &pages{Store: memory.New(clock.Real())}
	for i := range 1000 {
		if res, err := db.Put(t.Context(), fmt.Sprintf("/registry/a/%04d", i), []byte("x"), 0, 0); err != nil || !res.OK {
			t.Fatal(res, err)
		}
	}
	for i := range 3 {
		if res, err := db.Put(t.Context(), fmt.Sprintf("/registry/b/%d", i), make([]byte, mib), 0, 0); err != nil || !res.OK {
			t.Fatal(res, err)
		}
	}
	usage, err := measure(t.Context(), db, "/registry/", locateTest)
	if err != nil || usage.Keys != 1003 {
		t.Fatal(usage, err)
	}
	if want := []int64{16, 32, 64, 128, 256, 256, 256}; !slices.Equal(db.limits, want) {
		t.Errorf("limits of pages: %v, want %v", db.limits, want)
	}
}

// TestOneMeasurement checks that a report with the usage is rejected during another measurement.
func TestOneMeasurement(t *testing.T) {
	k := newFake().keeper(memory.New(clock.Real()), "a")
	k.measuring.Lock()
	if _, err := k.Report(t.Context(), true); !errors.Is(err, ErrMeasuring) {
		t.Error("during a measurement: ", err)
	}
	if _, err := k.Report(t.Context(), false); err != nil {
		t.Error("without the usage: ", err)
	}
	k.measuring.Unlock()
	if state, err := k.Report(t.Context(), true); err != nil || state.Usage == nil {
		t.Error("afterwards: ", state, err)
	}
}

// TestOneMemberAtATime lets several keepers maintain the same members, and checks that they never
// defragment two of them at once, that each member has its turn once, and that the leader is the last.
func TestOneMemberAtATime(t *testing.T) {
	fake, shared := newFake(), memory.New(clock.Real())
	var all sync.WaitGroup
	for i := range 5 {
		k := fake.keeper(shared, fmt.Sprint(i))
		all.Go(func() {
			for range 20 {
				if err := k.Maintain(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if fake.most != 1 || !slices.Equal(fake.order, []uint64{2, 3, 1}) {
		t.Errorf("%d at once, in the order %v; want 1, in the order 2, 3, 1", fake.most, fake.order)
	}
}
