// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storehealth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/keelson/pkg/apiserver/storehealth/report"
)

const (
	// ObserveInterval is the default time between observations. What clients can write in this time
	// must be less than the space that is left when writes are first rejected (410 MiB of 8 GiB).
	ObserveInterval = 5 * time.Second
	// maintainFactor is the number of observations between two calls of Maintain.
	maintainFactor = 6
	// noticeInterval is the time after which a notice about an unchanged level is repeated.
	noticeInterval = time.Hour
	// observeTimeout limits one observation or release of the lock, and defragmentTimeout the time for which
	// a keeper waits for one defragmentation. The latter is shorter than the time after which another server
	// takes the lock (see staleAfter). etcd does not stop a defragmentation whose client has gone, and an
	// embedded one always ends before the call returns.
	observeTimeout, defragmentTimeout = 10 * time.Second, 10 * time.Minute
	// retrySeconds is the Retry-After of rejected writes. client-go retries ten times, so a user of
	// kubectl sees the error after ten seconds.
	retrySeconds = 1
)

// Maintenance are the methods of an etcd.Store that a Keeper uses.
type Maintenance interface {
	Members(ctx context.Context) ([]etcd.Member, error)
	Defragment(ctx context.Context, m etcd.Member) error
	Disarm(ctx context.Context) error
	CompactNow(ctx context.Context, revision int64) error
}

// Notice is a message for operators about a changed level.
type Notice struct {
	Database string
	Level    Level
	// Namespace is the namespace that has grown most, or the largest one. It may be empty.
	Namespace string
	Message   string
}

// Config configures a Keeper. All fields are required, except Compacted.
type Config struct {
	Name        string // name of the database in metrics, logs and reports, for example etcd-0
	Maintenance Maintenance
	KV          kv.Store
	Root        string // prefix of the keys of all objects, with a slash at its end
	LockKey     string
	Holder      string // name of this server, which it also has after a restart
	Policy      Policy
	Interval    time.Duration // between observations
	Locate      Locator
	Notify      func(context.Context, Notice) error
	Compacted   func(revision int64) // called after a compaction
	Metrics     *Metrics
	Clock       clock.Clock
	Log         *slog.Logger
}

// Keeper keeps one database usable. It is safe for concurrent use, except that Maintain must not be
// called concurrently.
type Keeper struct {
	Config
	level atomic.Int64 // a Level

	observing sync.Mutex // held by Observe, so that levels change in the order of observations
	shown     []string   // IDs of members with metrics; guarded by observing
	noQuota   bool       // whether it was logged that etcd reports no quota; guarded by observing

	measuring sync.Mutex // held by measure
	// Steady is held while a member is defragmented. While others hold it, none is.
	Steady sync.Mutex

	// The fields below belong to Maintain.
	lock      lock
	done      map[uint64]time.Time // last defragmentation of each member
	past      int64                // revision at the last call
	compacted int64
	noticed   Level // level of the last notice
	noticedAt time.Time
	pending   *Notice       // notice that could not be delivered
	usage     *report.Usage // at the last notice
	disarmed  bool          // whether it was logged that the present alarm was ended
}

// New returns a Keeper. Run starts it.
func New(cfg Config) *Keeper {
	return &Keeper{Config: cfg, lock: lock{kv: cfg.KV, key: cfg.LockKey, holder: cfg.Holder}, done: map[uint64]time.Time{}}
}

// Run observes and maintains the database until ctx is done.
func (k *Keeper) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	// Observations go on while a member is defragmented.
	wg.Go(func() {
		k.every(ctx, k.Interval, func(ctx context.Context) error {
			_, err := k.Observe(ctx)
			return err
		})
	})
	wg.Go(func() { k.every(ctx, maintainFactor*k.Interval, k.Maintain) })
}

// every calls fn at once and then in each interval. An error is logged when it first occurs.
func (k *Keeper) every(ctx context.Context, interval time.Duration, fn func(context.Context) error) {
	ticker := k.Clock.NewTicker(interval)
	defer ticker.Stop()
	var last string
	for {
		text := ""
		if err := fn(ctx); err != nil && ctx.Err() == nil {
			text = err.Error()
		}
		if text != "" && text != last {
			k.Log.Error("Failed to maintain the database", "database", k.Name, "err", text)
		}
		last = text
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// Level returns the level at the last observation.
func (k *Keeper) Level() Level { return Level(k.level.Load()) }

// Observe reads the state of all members and sets the level. If the members are not known, the level
// stays.
func (k *Keeper) Observe(ctx context.Context) ([]etcd.Member, error) {
	k.observing.Lock()
	defer k.observing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	members, err := k.Maintenance.Members(ctx)
	if err != nil {
		return nil, fmt.Errorf("members of etcd: %w", err)
	}
	before := k.Level()
	level := before
	if anyKnown(members) {
		level = k.Policy.Level(members, before)
	}
	k.shown = k.Metrics.observe(k.Name, members, level, k.shown)
	k.level.Store(int64(level))
	k.checkQuota(members)
	if level != before {
		k.Log.Warn("The level of free space in the database has changed", "database", k.Name, "level", level.String(),
			"before", before.String(), "state", fullest(members))
	}
	return members, nil
}

// checkQuota says once that there can be no levels if a member of etcd does not report its quota.
func (k *Keeper) checkQuota(members []etcd.Member) {
	unknown := slices.ContainsFunc(members, func(m etcd.Member) bool { return m.Err == nil && m.Quota == 0 })
	if unknown && !k.noQuota && (k.Policy.Warn > 0 || k.Policy.Refuse > 0) {
		k.noQuota = true
		k.Log.Warn("A member of etcd does not report its quota, as before etcd 3.6. The server cannot warn or refuse "+
			"writes before it is full", "database", k.Name)
	}
}

func anyKnown(members []etcd.Member) bool {
	for i := range members {
		if members[i].Err == nil {
			return true
		}
	}
	return false
}

// fullest describes the member with the largest share of its quota in use.
func fullest(members []etcd.Member) string {
	var most *etcd.Member
	for i := range members {
		if m := &members[i]; m.Quota > 0 && (most == nil || inUse(m) > inUse(most)) {
			most = m
		}
	}
	if most == nil {
		return "the quota of etcd is not known"
	}
	const mib = 1 << 20
	return fmt.Sprintf("%d %% of etcd's quota is in use (%d of %d MiB)", most.InUse*100/most.Quota, most.InUse/mib,
		most.Quota/mib)
}

// inUse returns the share of a member's quota that is in use.
func inUse(m *etcd.Member) float64 { return float64(m.InUse) / float64(m.Quota) }

// Admit returns an error if a write must not happen because too little space is left. The server's own
// writes are always admitted.
func (k *Keeper) Admit(ctx context.Context, g store.Growth) error {
	level := k.Level()
	if k.Policy.Admits(level, g) {
		return nil
	}
	if u, ok := request.UserFrom(ctx); ok && u.GetName() == user.APIServerUser {
		return nil
	}
	k.Metrics.refused.WithLabelValues(k.Name).Inc()
	return apierrors.NewTooManyRequests(fmt.Sprintf("the database of the API server is almost full, so new and larger "+
		"objects of %s are refused until objects are deleted; \"ctl store status\" shows which namespaces and resources "+
		"are large", g.Resource.String()), retrySeconds)
}

// Maintain makes room if little is left. Run calls it once in each interval.
func (k *Keeper) Maintain(ctx context.Context) error {
	members, err := k.Observe(ctx)
	if err != nil {
		return err
	}
	level := k.Level()
	k.disarmed = k.disarmed && noSpace(members)
	err = k.makeRoom(ctx, members)
	// The notice comes last, because it may have to read the whole database.
	return errors.Join(err, k.notice(ctx, level, members))
}

func (k *Keeper) makeRoom(ctx context.Context, members []etcd.Member) error {
	if err := k.compact(ctx, members); err != nil {
		return fmt.Errorf("compaction: %w", err)
	}
	members, err := k.Observe(ctx) // the compaction has changed them
	if err != nil {
		return err
	}
	if err := k.defragment(ctx, members); err != nil {
		return fmt.Errorf("defragmentation: %w", err)
	}
	_, err = k.Observe(ctx)
	return err
}

// compact removes the history before the last call of Maintain if too little space is left, or if etcd
// must accept writes again. Otherwise the server's compactor removes it later.
func (k *Keeper) compact(ctx context.Context, members []etcd.Member) error {
	past := k.past
	for i := range members {
		k.past = max(k.past, members[i].Revision)
	}
	needed := k.Level() >= Refusing || k.Policy.Defragment && noSpace(members)
	if !needed || past <= k.compacted {
		return nil
	}
	if err := k.Maintenance.CompactNow(ctx, past); err != nil && !errors.Is(err, kv.ErrCompacted) {
		return err
	}
	k.compacted = past
	if k.Compacted != nil {
		k.Compacted(past)
	}
	return nil
}

// defragment defragments at most one member, and ends the alarm NOSPACE if there is space.
func (k *Keeper) defragment(ctx context.Context, members []etcd.Member) (err error) {
	if _, needed := k.Policy.Next(members, k.since, true); !needed {
		return k.disarm(ctx, members)
	}
	if !k.Steady.TryLock() {
		return nil // the next call tries again
	}
	defer k.Steady.Unlock()
	holding, err := k.lock.acquire(ctx)
	if err != nil || holding == elsewhere {
		return err
	}
	defer func() { err = errors.Join(err, k.unlock(ctx, err)) }()
	// Another server may have defragmented the member before this one got the lock.
	if members, err = k.Observe(ctx); err != nil {
		return err
	}
	m, needed := k.Policy.Next(members, k.since, holding == held)
	if !needed {
		return k.disarm(ctx, members)
	}
	if err := k.defragmentMember(ctx, m); err != nil {
		return err
	}
	if members, err = k.Observe(ctx); err != nil {
		return err
	}
	return k.disarm(ctx, members)
}

// unlock releases the lock after work that has returned err. If the work was interrupted, etcd still
// defragments the member. The lock then stays until it is stale, or until this server gets it again.
func (k *Keeper) unlock(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), observeTimeout)
	defer cancel()
	return k.lock.release(ctx)
}

func (k *Keeper) defragmentMember(ctx context.Context, m etcd.Member) error {
	ctx, cancel := context.WithTimeout(ctx, defragmentTimeout)
	defer cancel()
	start, result := k.Clock.Now(), "success"
	err := k.Maintenance.Defragment(ctx, m)
	if err != nil {
		result = "error"
	}
	took := k.Clock.Since(start)
	k.done[m.ID] = k.Clock.Now()
	k.Metrics.defragmentations.WithLabelValues(k.Name, result).Observe(took.Seconds())
	k.Log.Info("Defragmented a member of etcd", "database", k.Name, "member", m.Name, "size", m.Size, "inUse", m.InUse,
		"duration", took, "result", result)
	return err
}

// since returns the time since the last defragmentation of a member by this server.
func (k *Keeper) since(id uint64) time.Duration {
	last, ok := k.done[id]
	if !ok {
		return pause
	}
	return k.Clock.Since(last)
}

func (k *Keeper) disarm(ctx context.Context, members []etcd.Member) error {
	if !k.Policy.Disarms(members) {
		return nil
	}
	if err := k.Maintenance.Disarm(ctx); err != nil {
		return fmt.Errorf("end of the alarm NOSPACE: %w", err)
	}
	if !k.disarmed {
		k.disarmed = true
		k.Log.Warn("Ended the alarm NOSPACE of etcd", "database", k.Name)
	}
	return nil
}

// notice tells operators about a changed level, and again after noticeInterval. A notice that cannot be
// delivered, for example because etcd has no space for an event, is tried again at the next call, without
// another measurement.
func (k *Keeper) notice(ctx context.Context, level Level, members []etcd.Member) error {
	now := k.Clock.Now()
	if level == k.noticed && (level == Ample || now.Sub(k.noticedAt) < noticeInterval) {
		k.pending = nil
		return nil
	}
	if k.pending == nil || k.pending.Level != level {
		k.pending = &Notice{Database: k.Name, Level: level, Message: fullest(members)}
		if level > Ample {
			k.pending.Namespace, k.pending.Message = k.describe(ctx, k.pending.Message)
		}
	}
	if err := k.Notify(ctx, *k.pending); err != nil {
		return fmt.Errorf("notice: %w", err)
	}
	k.noticed, k.noticedAt, k.pending = level, now, nil
	return nil
}

// describe adds to a message which namespace has grown most since the last notice.
func (k *Keeper) describe(ctx context.Context, message string) (namespace, text string) {
	usage, err := k.measure(ctx)
	if err != nil {
		return "", message
	}
	share, growth := grown(k.usage, usage)
	k.usage = usage
	const kib = 1 << 10
	switch {
	case share.Name == "":
		return "", message
	case growth > 0:
		return share.Name, fmt.Sprintf("%s; namespace %s has grown most, by %d KiB to %d KiB in %d objects", message,
			share.Name, growth/kib, share.Bytes/kib, share.Keys)
	}
	return share.Name, fmt.Sprintf("%s; namespace %s is the largest, with %d KiB in %d objects", message, share.Name,
		share.Bytes/kib, share.Keys)
}

// Report returns the present state, and the usage if it is wanted. The only error is ErrMeasuring.
func (k *Keeper) Report(ctx context.Context, usage bool) (report.Database, error) {
	out := report.Database{Name: k.Name, WarningPercent: k.Policy.Warn, RefusalPercent: k.Policy.Refuse,
		Defragmentation: k.Policy.Defragment}
	members, err := k.Observe(ctx)
	out.Level = k.Level().String()
	if err != nil {
		out.Error = err.Error()
	}
	for i := range members {
		m := &members[i]
		shown := report.Member{ID: memberID(m), Name: m.Name, Leader: m.Leader, Size: m.Size, InUse: m.InUse,
			Quota: m.Quota, NoSpace: m.NoSpace, Revision: m.Revision}
		if m.Err != nil {
			shown.Error = m.Err.Error()
		}
		out.Members = append(out.Members, shown)
	}
	if usage {
		out.Usage, err = k.measure(ctx)
		if errors.Is(err, ErrMeasuring) {
			return report.Database{}, err
		}
		if err != nil && out.Error == "" {
			out.Error = err.Error()
		}
	}
	return out, nil
}
