// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// ignored is an exit code that does not count as a failure if the job has a failure policy.
const ignored = 42

var errKilled = errors.New("the controller was killed")

// world simulates an API server and a kubelet for one job. The controller sees the job and its pods
// through caches that lag, and may be killed during any write. world implements hands.
type world struct {
	mu      sync.Mutex // locked while the controller writes
	clock   *clocktesting.FakeClock
	job     *batchv1.Job
	version int
	pods    map[types.UID]*v1.Pod
	made    int
	// ends contains how each pod really ended, which the controller may not see.
	ends map[types.UID]end

	// syncer is the controller, seenJob and seenPods are what its caches show, and fuse is the
	// number of writes until it is killed (-1 for never).
	syncer   *syncer
	seenJob  *batchv1.Job
	seenPods map[types.UID]*v1.Pod
	fuse     int
	// applied reports whether the API server carries out the write during which the controller is
	// killed.
	applied bool
}

// end describes how a pod ended and how it must be counted.
type end struct {
	succeeded bool
	// deleted is set if the pod was deleted while it ran; then it counts as failed. If it ends
	// later with success or with an ignored exit code, it may be counted either way, depending on
	// what the controller saw first.
	deleted bool
	// unwanted is set if the pod was surplus when the controller saw it run, so that it need not be
	// counted.
	unwanted bool
	ignored  bool
	index    int
}

func newWorld(spec batchv1.JobSpec) *world {
	w := &world{
		clock: clocktesting.NewFakeClock(time.Unix(1_000_000, 0)), pods: map[types.UID]*v1.Pod{}, ends: map[types.UID]end{},
		job: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "n", UID: "job"}, Spec: spec},
	}
	w.job.ResourceVersion = w.next()
	w.restart()
	return w
}

func (w *world) next() string {
	w.version++
	return strconv.Itoa(w.version)
}

// restart replaces the controller by a new one that has an empty memory and whose caches show
// everything.
func (w *world) restart() {
	w.fuse = -1
	w.syncer = &syncer{
		hands: w, clock: w.clock, events: &record.FakeRecorder{}, expected: controller.NewExpectations(w.clock),
		memories: newMemories(), metrics: newMetrics(nil), after: func(string, time.Duration) {},
	}
	w.seenJob = w.job
	w.seenPods = maps.Clone(w.pods)
}

// see makes the cache show the present state of a pod, and updates the expectations as the
// controller's event handlers would.
func (w *world) see(uid types.UID) {
	was, is := w.seenPods[uid], w.pods[uid]
	key := controller.Key(w.job)
	switch {
	case is == nil:
		delete(w.seenPods, uid)
		w.syncer.expected.Deleted(key, uid)
		return
	case is.DeletionTimestamp != nil:
		w.syncer.expected.Deleted(key, uid)
		fallthrough
	default:
		if was == nil {
			w.syncer.expected.Created(key, uid)
		}
	}
	w.seenPods[uid] = is
}

func (w *world) seeAll() {
	w.seenJob = w.job
	for _, uid := range slices.Concat(slices.Collect(maps.Keys(w.pods)), slices.Collect(maps.Keys(w.seenPods))) {
		w.see(uid)
	}
}

// sync makes the controller sync the job once with what its caches show.
func (w *world) sync() {
	if w.fuse == 0 {
		w.restart()
	}
	if finished(w.seenJob) || w.syncer.memories.stale(w.seenJob) {
		return
	}
	complete := w.syncer.expected.Met(controller.Key(w.seenJob), w.seenJob.UID)
	var pods []*v1.Pod
	for _, uid := range slices.Sorted(maps.Keys(w.seenPods)) {
		pods = append(pods, w.seenPods[uid])
	}
	_ = w.syncer.sync(context.Background(), w.seenJob, pods, complete)
}

// write carries out a write of the controller with f, unless the controller was killed or is killed
// now.
func (w *world) write(f func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fuse == 0 {
		return errKilled
	}
	w.fuse--
	if w.fuse == 0 && !w.applied {
		return errKilled
	}
	err := f()
	if w.fuse == 0 {
		return errKilled
	}
	return err
}

func notFound(uid types.UID) error {
	return apierrors.NewNotFound(v1.Resource("pods"), string(uid))
}

// change modifies a pod on the API server. It removes the pod if that has a deletion timestamp, has
// ended and has no finalizer.
func (w *world) change(uid types.UID, f func(*v1.Pod)) error {
	pod := w.pods[uid]
	if pod == nil {
		return notFound(uid)
	}
	pod = pod.DeepCopy()
	f(pod)
	pod.ResourceVersion = w.next()
	w.pods[uid] = pod
	if pod.DeletionTimestamp != nil && terminal(pod) && !tracked(pod) {
		delete(w.pods, uid)
	}
	return nil
}

func (w *world) create(_ context.Context, _ *batchv1.Job, pod *v1.Pod) (types.UID, error) {
	err := w.write(func() error {
		w.made++
		pod.UID = types.UID(fmt.Sprintf("pod%03d", w.made))
		pod.Name, pod.ResourceVersion, pod.CreationTimestamp = string(pod.UID), w.next(), metav1.NewTime(w.clock.Now())
		pod.Status.Phase = v1.PodRunning
		w.pods[pod.UID] = pod
		return nil
	})
	return pod.UID, err
}

func (w *world) remove(_ context.Context, _ *batchv1.Job, pod *v1.Pod) error {
	return w.write(func() error { return w.delete(pod.UID) })
}

func (w *world) release(_ context.Context, pod *v1.Pod) error {
	return w.write(func() error {
		return w.change(pod.UID, func(p *v1.Pod) {
			if e, ended := w.ends[p.UID]; ended && controller.Active(pod) && !isTrue(w.job, batchv1.JobFailureTarget) {
				e.unwanted = true
				w.ends[p.UID] = e
			}
			p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == batchv1.JobTrackingFinalizer })
		})
	})
}

func (w *world) writeStatus(_ context.Context, job *batchv1.Job) (*batchv1.Job, error) {
	err := w.write(func() error {
		if job.ResourceVersion != w.job.ResourceVersion {
			return apierrors.NewConflict(batchv1.Resource("jobs"), job.Name, errors.New("there is a newer one"))
		}
		if finished(job) && job.Status.StartTime == nil {
			return apierrors.NewBadRequest("startTime is required for finished job")
		}
		w.job = job.DeepCopy()
		w.job.ResourceVersion = w.next()
		return nil
	})
	return w.job, err
}

// delete sets the deletion timestamp of a pod.
func (w *world) delete(uid types.UID) error {
	return w.change(uid, func(p *v1.Pod) {
		if p.DeletionTimestamp == nil {
			p.DeletionTimestamp = ptr.To(metav1.NewTime(w.clock.Now()))
		}
		if e, ended := w.ends[uid]; ended || tracked(p) {
			e.deleted, e.index = true, indexOf(p)
			w.ends[uid] = e
		}
	})
}

// finish makes a pod end with the given exit code.
func (w *world) finish(uid types.UID, code int32) {
	_ = w.change(uid, func(p *v1.Pod) {
		p.Status.Phase = v1.PodSucceeded
		if code != 0 {
			p.Status.Phase = v1.PodFailed
		}
		p.Status.ContainerStatuses = []v1.ContainerStatus{
			{Name: "c", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				ExitCode: code, FinishedAt: metav1.NewTime(w.clock.Now()),
			}}}}
		e, counts := w.ends[uid]
		if !counts && !tracked(p) {
			return // the controller has removed the finalizer, so it need not count the pod
		}
		e.succeeded, e.ignored, e.index = code == 0, code == ignored, indexOf(p)
		w.ends[uid] = e
	})
}

// respec changes the job's spec, as a user might.
func (w *world) respec(f func(*batchv1.JobSpec)) {
	w.job = w.job.DeepCopy()
	f(&w.job.Spec)
	w.job.ResourceVersion = w.next()
}

// strip removes a pod's finalizers, as another client might. The pod then need not be counted.
func (w *world) strip(uid types.UID) {
	e := w.ends[uid]
	e.unwanted = true
	w.ends[uid] = e
	_ = w.change(uid, func(p *v1.Pod) { p.Finalizers = nil })
}

// running returns the UIDs of the pods that have not ended.
func (w *world) running() []types.UID {
	var out []types.UID
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		if !terminal(w.pods[uid]) {
			out = append(out, uid)
		}
	}
	return out
}

func drawSpec(t *rapid.T) batchv1.JobSpec {
	spec := batchv1.JobSpec{
		Parallelism:  ptr.To(rapid.Int32Range(1, 3).Draw(t, "parallelism")),
		Completions:  ptr.To(rapid.Int32Range(1, 4).Draw(t, "completions")),
		BackoffLimit: ptr.To(rapid.Int32Range(0, 5).Draw(t, "backoffLimit")),
	}
	if rapid.Bool().Draw(t, "indexed") {
		spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		if rapid.Bool().Draw(t, "limited by index") {
			spec.BackoffLimitPerIndex = ptr.To(rapid.Int32Range(0, 2).Draw(t, "backoffLimitPerIndex"))
			spec.BackoffLimit = ptr.To[int32](1 << 30)
		}
	}
	if rapid.Bool().Draw(t, "with policy") {
		spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
		spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action: batchv1.PodFailurePolicyActionIgnore,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{ignored},
			},
		}}}
	}
	return spec
}

// TestCounts checks that each ended pod is counted exactly once, no matter when the controller is
// killed and how much its caches lag.
func TestCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(drawSpec(t))
		pick := func(t *rapid.T, uids []types.UID) types.UID {
			if len(uids) == 0 {
				t.Skip("no pod")
			}
			return rapid.SampledFrom(uids).Draw(t, "pod")
		}
		var succeeded, failures int32
		t.Repeat(map[string]func(*rapid.T){
			"sync":    func(*rapid.T) { w.sync() },
			"see job": func(*rapid.T) { w.seenJob = w.job },
			"see pod": func(t *rapid.T) {
				all := slices.Concat(slices.Collect(maps.Keys(w.pods)), slices.Collect(maps.Keys(w.seenPods)))
				slices.Sort(all)
				w.see(pick(t, all))
			},
			"see all": func(*rapid.T) { w.seeAll() },
			"end": func(t *rapid.T) {
				w.finish(pick(t, w.running()), rapid.SampledFrom([]int32{0, 0, 1, ignored}).Draw(t, "code"))
			},
			"delete": func(t *rapid.T) { _ = w.delete(pick(t, w.running())) },
			"kill": func(t *rapid.T) {
				w.fuse, w.applied = rapid.IntRange(1, 6).Draw(t, "writes"), rapid.Bool().Draw(t, "applied")
			},
			"restart": func(*rapid.T) { w.restart() },
			"suspend": func(t *rapid.T) {
				w.respec(func(spec *batchv1.JobSpec) { spec.Suspend = ptr.To(rapid.Bool().Draw(t, "suspend")) })
			},
			"scale": func(t *rapid.T) {
				w.respec(func(spec *batchv1.JobSpec) { spec.Parallelism = ptr.To(rapid.Int32Range(0, 3).Draw(t, "parallelism")) })
			},
			"strip": func(t *rapid.T) { w.strip(pick(t, slices.Sorted(maps.Keys(w.pods)))) },
			"wait":  func(*rapid.T) { w.clock.Step(time.Minute) }, // shorter than controller.ExpectationTimeout
			"": func(t *rapid.T) {
				w.check(t)
				if s := w.job.Status; s.Succeeded < succeeded || s.Failed < failures {
					t.Fatalf("counts shrink: %+v", s)
				}
				succeeded, failures = w.job.Status.Succeeded, w.job.Status.Failed
			},
		})
		w.settle(t)
	})
}

// settle lets all pods succeed without any fault until the job has finished, and checks the result.
func (w *world) settle(t *rapid.T) {
	w.respec(func(spec *batchv1.JobSpec) { spec.Suspend, spec.Parallelism = nil, ptr.To[int32](2) })
	w.restart()
	for range 300 {
		if finished(w.job) {
			break
		}
		w.clock.Step(15 * time.Minute)
		w.sync()
		w.seeAll()
		for _, uid := range w.running() {
			w.finish(uid, 0)
		}
		w.seeAll()
	}
	if !finished(w.job) {
		t.Fatalf("the job does not end: %+v", w.job.Status)
	}
	for _, pod := range w.pods {
		if tracked(pod) {
			t.Fatalf("a finished job's pod has the finalizer: %+v", pod)
		}
	}
	if w.job.Status.StartTime == nil {
		t.Fatal("a finished job never started")
	}
	w.check(t)
}

// check compares the numbers in the status with how the pods ended.
func (w *world) check(t *rapid.T) {
	s := w.job.Status
	indexes := map[int]bool{}
	// succeeded and failures are the minimum numbers. either is the number of pods that may count
	// as succeeded or as failed, and maybe the number of pods that need not be counted.
	var succeeded, failures, either, maybe int
	for _, e := range w.ends {
		ignored := e.ignored && w.job.Spec.PodFailurePolicy != nil
		// If the job replaces pods only after they have ended and its success criteria are met, it
		// completes without waiting for pods that are being deleted. So these pods need not be
		// counted.
		unheard := e.deleted && isTrue(w.job, batchv1.JobSuccessCriteriaMet) && onlyFailedReplaced(w.job)
		switch {
		case ignored && !e.deleted:
		case unheard || ignored || e.unwanted:
			maybe++
		case e.succeeded && e.deleted:
			either++
		case e.succeeded:
			succeeded++
			indexes[e.index] = true
		default:
			failures++
		}
	}
	noted := s.UncountedTerminatedPods
	if noted == nil {
		noted = &batchv1.UncountedTerminatedPods{}
	}
	gotSucceeded, gotFailed := int(s.Succeeded)+len(noted.Succeeded), int(s.Failed)+len(noted.Failed)
	if indexed(w.job) {
		if n := parseIndexes(s.CompletedIndexes, 100).count(); n != int(s.Succeeded) {
			t.Fatalf("%d indexes succeeded, the count is %d", n, s.Succeeded)
		}
		for i := range indexes {
			if finished(w.job) && !parseIndexes(s.CompletedIndexes, 100).has(i) {
				t.Fatalf("index %d is not noted: %q", i, s.CompletedIndexes)
			}
		}
		succeeded = len(indexes)
	}
	exact := finished(w.job)
	all, most := gotSucceeded+gotFailed, succeeded+failures+either+maybe
	if gotSucceeded > succeeded+either+maybe || gotFailed > failures+either+maybe || !indexed(w.job) && all > most ||
		exact && (gotSucceeded < succeeded || gotFailed < failures || !indexed(w.job) && all < most-maybe) {
		t.Fatalf("succeeded %d of %d, failed %d of %d, either %d, maybe %d; status %+v", gotSucceeded,
			succeeded, gotFailed, failures, either, maybe, s)
	}
}
