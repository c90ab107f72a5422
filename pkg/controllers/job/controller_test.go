// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/controllers/serviceaccount"
)

const namespace = "default"

// server is an API server with the job controller. The test plays the kubelet.
type server struct {
	*testserver.Server
	t *testing.T
}

func start(t *testing.T) server {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Run(t, s, controller.Options{}, serviceaccount.NewDefaultAccounts)
	controllertest.RunAs(t, s, "job-controller", controller.Options{}, New)
	controllertest.Eventually(t, "service account", func(ctx context.Context) (any, bool) {
		_, err := s.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err, err == nil
	})
	return server{s, t}
}

func (s server) create(name string, spec batchv1.JobSpec) *batchv1.Job {
	s.t.Helper()
	spec.Template.Spec.Containers = []v1.Container{{Name: "c", Image: "i"}}
	if spec.Template.Spec.RestartPolicy == "" {
		spec.Template.Spec.RestartPolicy = v1.RestartPolicyNever
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	got, err := s.Client.BatchV1().Jobs(namespace).Create(s.t.Context(), job, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

func (s server) patch(name, patch string) {
	s.t.Helper()
	_, err := s.Client.BatchV1().Jobs(namespace).Patch(s.t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

// job waits until ok returns true for the job with the given name, and returns the job.
func (s server) job(name, what string, ok func(*batchv1.Job) bool) *batchv1.Job {
	s.t.Helper()
	var job *batchv1.Job
	controllertest.Eventually(s.t, what, func(ctx context.Context) (any, bool) {
		got, err := s.Client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err, false
		}
		job = got
		return got.Status, ok(got)
	})
	return job
}

// pods waits until a job has exactly n pods for which ok returns true, and returns these pods,
// sorted by index.
func (s server) pods(job string, n int, ok func(*v1.Pod) bool) []*v1.Pod {
	s.t.Helper()
	var out []*v1.Pod
	controllertest.Eventually(s.t, "pods", func(ctx context.Context) (any, bool) {
		list, err := s.Client.CoreV1().Pods(namespace).List(ctx,
			metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job})
		if err != nil {
			return err, false
		}
		out = nil
		for i := range list.Items {
			if ok(&list.Items[i]) {
				out = append(out, &list.Items[i])
			}
		}
		return out, len(out) == n
	})
	slices.SortFunc(out, func(a, b *v1.Pod) int { return indexOf(a) - indexOf(b) })
	return out
}

// end sets the status of a pod as if its container had ended with the given exit code.
func (s server) end(pod *v1.Pod, code int32) {
	s.t.Helper()
	pod.Status.Phase = v1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = v1.PodFailed
	}
	pod.Status.ContainerStatuses = []v1.ContainerStatus{
		{Name: "c", Image: "i", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: code, FinishedAt: metav1.Unix(1, 0), // long ago, so that there is no back-off
		}}}}
	if _, err := s.Client.CoreV1().Pods(namespace).UpdateStatus(s.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func fresh(pod *v1.Pod) bool { return controller.Active(pod) && tracked(pod) }

func TestServerCounts(t *testing.T) {
	s := start(t)
	s.create("j", batchv1.JobSpec{Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](2)})
	first := s.pods("j", 2, fresh)
	s.job("j", "two run", func(j *batchv1.Job) bool { return j.Status.Active == 2 && j.Status.StartTime != nil })
	s.end(first[0], 0)
	s.end(first[1], 1)
	s.job("j", "one succeeded, one failed, two run", func(j *batchv1.Job) bool {
		return j.Status.Succeeded == 1 && j.Status.Failed == 1 && j.Status.Active == 2 && !finished(j)
	})
	for _, pod := range s.pods("j", 2, fresh) {
		s.end(pod, 0)
	}
	job := s.job("j", "complete", finished)
	st := job.Status
	if st.Succeeded != 3 || st.Failed != 1 || st.Active != 0 || st.CompletionTime == nil ||
		!isTrue(job, batchv1.JobComplete) || !isTrue(job, batchv1.JobSuccessCriteriaMet) {
		t.Errorf("status at the end: %+v", st)
	}
	s.pods("j", 4, func(pod *v1.Pod) bool { return !tracked(pod) })
}

func TestServerIndexed(t *testing.T) {
	s := start(t)
	s.create("x", batchv1.JobSpec{
		Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](3), CompletionMode: ptr.To(batchv1.IndexedCompletion),
		BackoffLimitPerIndex: ptr.To[int32](1), MaxFailedIndexes: ptr.To[int32](2),
	})
	pods := s.pods("x", 3, fresh)
	s.end(pods[0], 0)
	s.end(pods[1], 1)
	s.end(pods[2], 0)
	again := s.pods("x", 1, fresh)[0]
	if counted, _ := indexFailures(again); indexOf(again) != 1 || counted != 1 || again.Spec.Hostname != "x-1" {
		t.Errorf("the pod after the one that failed: %+v", again)
	}
	s.end(again, 1)
	job := s.job("x", "failed", finished)
	st := job.Status
	if st.CompletedIndexes != "0,2" || *st.FailedIndexes != "1" || st.Succeeded != 2 || st.Failed != 2 ||
		condition(job, batchv1.JobFailed).Reason != batchv1.JobReasonFailedIndexes {
		t.Errorf("status at the end: %+v", st)
	}
	s.pods("x", 4, func(pod *v1.Pod) bool { return !tracked(pod) })
}

func TestServerSuspend(t *testing.T) {
	s := start(t)
	s.create("j", batchv1.JobSpec{Suspend: ptr.To(true), Parallelism: ptr.To[int32](2)})
	s.job("j", "suspended", func(j *batchv1.Job) bool {
		return isTrue(j, batchv1.JobSuspended) &&
			j.Status.StartTime == nil
	})
	suspend := func(yes bool) { s.patch("j", fmt.Sprintf(`{"spec":{"suspend":%v}}`, yes)) }
	suspend(false)
	s.pods("j", 2, fresh)
	s.job("j", "resumed", func(j *batchv1.Job) bool {
		c := condition(j, batchv1.JobSuspended)
		return c != nil && c.Status == v1.ConditionFalse && c.Reason == "JobResumed" &&
			j.Status.StartTime != nil && j.Status.Active == 2
	})
	suspend(true)
	s.pods("j", 0, func(*v1.Pod) bool { return true })
	s.job("j", "suspended again", func(j *batchv1.Job) bool {
		return isTrue(j, batchv1.JobSuspended) && j.Status.StartTime == nil && j.Status.Active == 0 && j.Status.Failed == 0
	})
}

// TestServerOrphans checks that pods lose the tracking finalizer when their job is deleted but the
// pods are not.
func TestServerOrphans(t *testing.T) {
	s := start(t)
	s.create("j", batchv1.JobSpec{})
	s.pods("j", 1, fresh)
	// Use background deletion, so that the API server deletes the job at once. The pods remain,
	// because no garbage collector runs here.
	orphan := metav1.DeletePropagationBackground
	if err := s.Client.BatchV1().Jobs(namespace).Delete(t.Context(), "j",
		metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "gone", func(ctx context.Context) (any, bool) {
		_, err := s.Client.BatchV1().Jobs(namespace).Get(ctx, "j", metav1.GetOptions{})
		return err, apierrors.IsNotFound(err)
	})
	s.pods("j", 1, func(pod *v1.Pod) bool { return !tracked(pod) })
}

// TestServerAdoption checks that a job adopts a matching pod without an owner and adds the
// finalizer to it, and that both are removed from a pod that the job no longer selects.
func TestServerAdoption(t *testing.T) {
	s := start(t)
	s.create("j", batchv1.JobSpec{})
	pod := s.pods("j", 1, fresh)[0]
	change := func(patch string) {
		_, err := s.Client.CoreV1().Pods(namespace).Patch(t.Context(), pod.Name, types.MergePatchType,
			[]byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	change(`{"metadata":{"ownerReferences":null,"finalizers":null}}`)
	owned := func(p *v1.Pod) bool { return metav1.GetControllerOf(p) != nil }
	s.pods("j", 1, func(p *v1.Pod) bool { return p.UID == pod.UID && owned(p) && tracked(p) })
	change(`{"metadata":{"labels":{"` + batchv1.ControllerUidLabel + `":"other"}}}`)
	s.pods("j", 1, func(p *v1.Pod) bool { return p.UID == pod.UID && !owned(p) && !tracked(p) })
	s.pods("j", 1, func(p *v1.Pod) bool { return p.UID != pod.UID && owned(p) && tracked(p) })
}

// TestServerElastic checks that scaling down an Indexed job reduces its number of succeeded
// indexes, and that the job ends when its success policy is met.
func TestServerElastic(t *testing.T) {
	s := start(t)
	s.create("j", batchv1.JobSpec{
		Completions: ptr.To[int32](4), Parallelism: ptr.To[int32](4), CompletionMode: ptr.To(batchv1.IndexedCompletion),
		SuccessPolicy: &batchv1.SuccessPolicy{
			Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr.To("0"), SucceededCount: ptr.To[int32](1)}}},
	})
	pods := s.pods("j", 4, fresh)
	s.end(pods[3], 0)
	s.end(pods[2], 0)
	s.job("j", "two succeed", func(j *batchv1.Job) bool {
		return j.Status.CompletedIndexes == "2,3" &&
			j.Status.Succeeded == 2
	})
	s.patch("j", `{"spec":{"completions":3,"parallelism":3}}`)
	s.job("j", "one of the indexes is left",
		func(j *batchv1.Job) bool { return j.Status.CompletedIndexes == "2" && j.Status.Succeeded == 1 })
	s.end(pods[0], 0)
	job := s.job("j", "the policy is met", func(j *batchv1.Job) bool { return isTrue(j, batchv1.JobSuccessCriteriaMet) })
	if c := condition(job, batchv1.JobSuccessCriteriaMet); c.Reason != batchv1.JobReasonSuccessPolicy ||
		c.Message != "Matched rules at index 0" {
		t.Errorf("condition %+v", c)
	}
	job = s.job("j", "complete", finished)
	if job.Status.Succeeded != 2 || job.Status.Failed != 0 || job.Status.CompletedIndexes != "0,2" {
		t.Errorf("status at the end: %+v", job.Status)
	}
}
