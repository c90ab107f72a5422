// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var now = time.Unix(10_000, 0)

// jobOf returns a job that needs n succeeded pods and runs p pods at once, modified by the given
// functions.
func jobOf(n, p int32, more ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "n"}, Spec: batchv1.JobSpec{
		Completions: &n, Parallelism: &p, BackoffLimit: ptr.To[int32](6),
	}}
	for _, f := range more {
		f(j)
	}
	return j
}

func byIndex(j *batchv1.Job) { j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion) }

func limit(n int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		byIndex(j)
		j.Spec.BackoffLimitPerIndex = &n
	}
}

// podsOf returns one pod for each of the given functions, which modifies it. The pods have the UIDs
// 0, 1 and so on.
func podsOf(list ...func(*v1.Pod)) []*v1.Pod {
	var out []*v1.Pod
	for i, f := range list {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "p" + strconv.Itoa(i), Namespace: "n", UID: types.UID(strconv.Itoa(i)),
			Finalizers: []string{batchv1.JobTrackingFinalizer}, Annotations: map[string]string{},
		}}
		f(pod)
		out = append(out, pod)
	}
	return out
}

func runs(p *v1.Pod)      { p.Status.Phase = v1.PodRunning }
func succeeds(p *v1.Pod)  { ends(p, 0, 0) }
func failsNow(p *v1.Pod)  { ends(p, 1, 0) }
func failsLong(p *v1.Pod) { ends(p, 1, time.Hour) }
func goes(p *v1.Pod)      { runs(p); p.DeletionTimestamp = &metav1.Time{Time: now} }

func ends(p *v1.Pod, code int32, ago time.Duration) {
	p.Status.Phase = v1.PodSucceeded
	if code != 0 {
		p.Status.Phase = v1.PodFailed
	}
	p.Status.ContainerStatuses = []v1.ContainerStatus{
		{Name: "main", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: code, FinishedAt: metav1.NewTime(now.Add(-ago)),
		}}}}
}

// of returns a function that modifies a pod with f, and then sets its index and its number of
// earlier failures.
func of(index, failures int, f func(*v1.Pod)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		f(p)
		p.Annotations[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(index)
		p.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(failures)
	}
}

func TestVerdict(t *testing.T) {
	started := func(ago time.Duration) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Spec.ActiveDeadlineSeconds, j.Status.StartTime = ptr.To[int64](60), &metav1.Time{Time: now.Add(-ago)}
		}
	}
	onFailure := func(j *batchv1.Job) { j.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyOnFailure }
	restarted := func(n int32) func(*v1.Pod) {
		return func(p *v1.Pod) {
			runs(p)
			p.Status.ContainerStatuses = []v1.ContainerStatus{{RestartCount: n - 1}}
			p.Status.InitContainerStatuses = []v1.ContainerStatus{{RestartCount: 1}}
		}
	}
	is := func(kind batchv1.JobConditionType) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Status.Conditions = append(j.Status.Conditions,
				batchv1.JobCondition{Type: kind, Status: v1.ConditionTrue, Reason: "Before", Message: "as it was"})
		}
	}
	successes := func(which string, n *int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			byIndex(j)
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{
				{SucceededIndexes: ptr.To("3")}, {SucceededIndexes: &which, SucceededCount: n},
			}}
		}
	}
	for name, tc := range map[string]struct {
		job     *batchv1.Job
		pods    []*v1.Pod
		end     batchv1.JobConditionType
		reason  string
		message string
	}{
		"continues": {jobOf(3, 3), podsOf(runs, failsNow, succeeds), "", "", ""},
		"too many failures": {
			jobOf(3, 3, func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](1); j.Status.Failed = 1 }),
			podsOf(failsNow), batchv1.JobFailureTarget, "BackoffLimitExceeded", "Job has reached the specified backoff limit"},
		"deleted pods fail": {jobOf(3, 3, func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](0) }),
			podsOf(goes), batchv1.JobFailureTarget, "BackoffLimitExceeded", "Job has reached the specified backoff limit"},
		"counted pods do not": {jobOf(3, 3, func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](0) }),
			podsOf(func(p *v1.Pod) { failsNow(p); p.Finalizers = nil }), "", "", ""},
		"restarts, few": {jobOf(1, 1, onFailure), podsOf(restarted(5)), "", "", ""},
		"restarts, many": {jobOf(1, 1, onFailure), podsOf(restarted(6)), batchv1.JobFailureTarget,
			"BackoffLimitExceeded", "Job has reached the specified backoff limit"},
		"in time": {jobOf(1, 1, started(59*time.Second)), podsOf(runs), "", "", ""},
		"too long": {jobOf(1, 1, started(60*time.Second)), podsOf(runs), batchv1.JobFailureTarget,
			"DeadlineExceeded", "Job was active longer than specified deadline"},
		"suspended so long": {
			jobOf(1, 1, started(time.Hour), func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }), nil, "", "", ""},
		"failure stays": {jobOf(1, 1, is(batchv1.JobFailureTarget)), podsOf(succeeds), batchv1.JobFailed,
			"Before", "as it was"},
		"success stays": {jobOf(1, 1, is(batchv1.JobSuccessCriteriaMet), started(time.Hour)),
			podsOf(runs), batchv1.JobSuccessCriteriaMet, "Before", "as it was"},
		"index has a retry": {jobOf(2, 2, limit(1)), podsOf(of(0, 0, failsNow), of(1, 0, succeeds)), "", "", ""},
		"index failed":      {jobOf(2, 2, limit(1)), podsOf(of(0, 1, failsNow), of(1, 0, runs)), "", "", ""},
		"the rest is done": {jobOf(2, 2, limit(1)), podsOf(of(0, 1, failsNow), of(1, 0, succeeds)),
			batchv1.JobFailureTarget, "FailedIndexes", "Job has failed indexes"},
		"too many failed": {
			jobOf(3, 3, limit(0),
				func(j *batchv1.Job) {
					j.Spec.MaxFailedIndexes = ptr.To[int32](1)
					j.Status.FailedIndexes = ptr.To("2")
				}), podsOf(of(0, 0, failsNow)),
			batchv1.JobFailureTarget, "MaxFailedIndexesExceeded",
			"Job has exceeded the specified maximal number of failed indexes"},
		"policy: indexes done": {jobOf(4, 4, successes("0-1", nil)),
			podsOf(of(0, 0, succeeds), of(1, 0, succeeds), of(2, 0, runs)), batchv1.JobSuccessCriteriaMet,
			"SuccessPolicy", "Matched rules at index 1"},
		"policy: some left": {jobOf(4, 4, successes("0-1", nil)),
			podsOf(of(0, 0, succeeds), of(2, 0, succeeds)), "", "", ""},
		"policy: enough done": {jobOf(4, 4, successes("0-2", ptr.To[int32](2))),
			podsOf(of(0, 0, succeeds), of(2, 0, succeeds)), batchv1.JobSuccessCriteriaMet, "SuccessPolicy",
			"Matched rules at index 1"},
	} {
		t.Run(name, func(t *testing.T) {
			got := newSurvey(tc.job, tc.pods, nil, backoff{}, now).verdict()
			if got == nil {
				got = &batchv1.JobCondition{}
			}
			if got.Type != tc.end || got.Reason != tc.reason || got.Message != tc.message {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	queue := func(j *batchv1.Job) { j.Spec.Completions = nil }
	patient := func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed) }
	for name, tc := range map[string]struct {
		job    *batchv1.Job
		pods   []*v1.Pod
		remove []string
		create []int
		wait   time.Duration
	}{
		"starts": {job: jobOf(3, 2), create: []int{noIndex, noIndex}},
		"remaining only": {job: jobOf(3, 3, func(j *batchv1.Job) { j.Status.Succeeded = 1 }),
			pods: podsOf(runs), create: []int{noIndex}},
		"waits after a failure": {job: jobOf(3, 3), pods: podsOf(failsNow), wait: 10 * time.Second},
		"waited long enough":    {job: jobOf(3, 1), pods: podsOf(failsLong), create: []int{noIndex}},
		"too many": {job: jobOf(3, 1),
			pods: podsOf(runs, func(p *v1.Pod) { p.Status.Phase = v1.PodPending }), remove: []string{"p1"}},
		"suspended": {job: jobOf(3, 3, func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }),
			pods: podsOf(runs, runs, succeeds), remove: []string{"p0", "p1"}},
		"queue starts": {job: jobOf(0, 2, queue), create: []int{noIndex, noIndex}},
		"queue ends":   {job: jobOf(0, 2, queue), pods: podsOf(succeeds, runs)},
		"indexes": {
			job:  jobOf(4, 3, byIndex, func(j *batchv1.Job) { j.Status.CompletedIndexes = "1" }),
			pods: podsOf(of(0, 0, runs)), create: []int{2, 3}},
		"deleted index replaced": {job: jobOf(2, 2, byIndex), pods: podsOf(of(0, 0, goes), of(1, 0, runs)),
			wait: 10 * time.Second},
		"deleted index waits": {job: jobOf(2, 2, byIndex, patient), pods: podsOf(of(0, 0, goes), of(1, 0, runs))},
		"duplicate indexes": {job: jobOf(3, 3, byIndex),
			pods:   podsOf(of(0, 0, runs), of(0, 0, func(p *v1.Pod) {}), of(7, 0, runs), of(1, 0, runs)),
			remove: []string{"p1", "p2"}},
		"one index waits": {job: jobOf(3, 3, limit(2)), pods: podsOf(of(0, 1, failsNow)), create: []int{1, 2}},
		"index waits":     {job: jobOf(1, 1, limit(2)), pods: podsOf(of(0, 1, failsNow)), wait: 20 * time.Second},
		"index failed":    {job: jobOf(2, 2, limit(0)), pods: podsOf(of(0, 0, failsLong)), create: []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newSurvey(tc.job, tc.pods, nil, backoff{}, now).plan()
			var removed []string
			for _, pod := range p.remove {
				removed = append(removed, pod.Name)
			}
			slices.Sort(removed)
			if !slices.Equal(removed, tc.remove) || !slices.Equal(p.create, tc.create) || p.wait != tc.wait {
				t.Errorf("remove %v, create %v, wait %v", removed, p.create, p.wait)
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	for name, tc := range map[string]struct {
		before          backoff
		succeeded, lost []*v1.Pod
		failures        int32
		left            time.Duration
	}{
		"none":                    {failures: 0, left: 0},
		"first":                   {lost: podsOf(failsNow), failures: 1, left: 10 * time.Second},
		"third":                   {before: backoff{2, now}, lost: podsOf(failsNow), failures: 3, left: 40 * time.Second},
		"at most":                 {before: backoff{40, now}, lost: podsOf(failsNow), failures: 41, left: 10 * time.Minute},
		"over":                    {lost: podsOf(failsLong), failures: 1, left: 0},
		"success ends it":         {before: backoff{5, now}, succeeded: podsOf(succeeds)},
		"failures before success": {before: backoff{5, now}, succeeded: podsOf(succeeds), lost: podsOf(failsLong)},
		"failures after success": {before: backoff{5, now},
			succeeded: podsOf(func(p *v1.Pod) { ends(p, 0, time.Hour) }), lost: podsOf(failsNow, failsNow),
			failures: 2, left: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			b := tc.before.after(tc.succeeded, tc.lost)
			if b.failures != tc.failures || b.remaining(now) != tc.left {
				t.Errorf("%d failures, %v left", b.failures, b.remaining(now))
			}
		})
	}
}

func TestApplyPolicy(t *testing.T) {
	rules := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{Action: "Ignore", OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
			{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}},
		{Action: "FailJob", OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			ContainerName: ptr.To("main"), Operator: "In", Values: []int32{3, 4}}},
		{Action: "FailIndex", OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: "NotIn",
			Values: []int32{1, 2}}},
		{Action: "FailJob", OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
			{Type: "ConfigIssue", Status: v1.ConditionTrue}}},
	}}
	code := func(container string, n int32) func(*v1.Pod) {
		return func(p *v1.Pod) {
			ends(p, n, 0)
			p.Status.ContainerStatuses[0].Name = container
		}
	}
	conditioned := func(kind v1.PodConditionType) func(*v1.Pod) {
		return func(p *v1.Pod) {
			code("main", 1)(p)
			p.Status.Conditions = []v1.PodCondition{{Type: kind, Status: v1.ConditionTrue}}
		}
	}
	for name, tc := range map[string]struct {
		pod     func(*v1.Pod)
		action  batchv1.PodFailurePolicyAction
		message string
	}{
		"nothing matches": {code("main", 2), "Count", ""},
		"disrupted":       {conditioned(v1.DisruptionTarget), "Ignore", ""},
		"fatal code": {code("main", 4), "FailJob",
			"Container main for pod n/p0 failed with exit code 4 matching FailJob rule at index 1"},
		"code of another container": {code("side", 4), "FailIndex", ""},
		"bad condition": {conditioned("ConfigIssue"), "FailJob",
			"Pod n/p0 has condition ConfigIssue matching FailJob rule at index 3"},
		"success matches nothing": {code("main", 0), "Count", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := applyPolicy(rules, podsOf(tc.pod)[0]); got.action != tc.action || got.message != tc.message {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestNewPod(t *testing.T) {
	job := jobOf(20, 1, limit(3))
	job.Spec.Template.Spec.Containers = []v1.Container{{Name: "a"},
		{Name: "b", Env: []v1.EnvVar{{Name: indexVariable, Value: "mine"}}}}
	pod := newPod(job, 12, podsOf(of(12, 1, failsNow))[0])
	if pod.GenerateName != "j-12-" || pod.Spec.Hostname != "j-12" ||
		pod.Labels[batchv1.JobCompletionIndexAnnotation] != "12" ||
		pod.Annotations[batchv1.JobIndexFailureCountAnnotation] != "2" || indexOf(pod) != 12 || !tracked(pod) {
		t.Errorf("pod: %+v", pod)
	}
	a, b := pod.Spec.Containers[0].Env, pod.Spec.Containers[1].Env
	if len(a) != 1 ||
		a[0].ValueFrom.FieldRef.FieldPath != "metadata.labels['batch.kubernetes.io/job-completion-index']" ||
		len(b) != 1 || b[0].Value != "mine" {
		t.Errorf("variables: %+v, %+v", a, b)
	}
	long := jobOf(1, 1)
	long.Name = "a-job-of-a-name-that-is-exactly-as-long-as-it-may-be-namely-63"
	if got := indexedPrefix(long.Name, 7); len(got) != maxGenerated || got[len(got)-3:] != "-7-" {
		t.Errorf("prefix %q", got)
	}
}
