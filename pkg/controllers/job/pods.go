// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// noIndex is the completion index of a pod that has none.
const noIndex = -1

// indexOf returns a pod's completion index, or noIndex.
func indexOf(pod *v1.Pod) int {
	n, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || n < 0 {
		return noIndex
	}
	return n
}

func indexesOf(pods []*v1.Pod) indexes {
	var list []int
	for _, pod := range pods {
		if i := indexOf(pod); i != noIndex {
			list = append(list, i)
		}
	}
	return indexSet(list)
}

func tracked(pod *v1.Pod) bool { return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer) }

func terminal(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

func terminating(pod *v1.Pod) bool { return pod.DeletionTimestamp != nil && !terminal(pod) }

// failed reports whether a pod counts as failed for its job. A pod that is being deleted counts as
// failed, because it may never report how it ended. But if the job replaces pods only after they
// have ended, such a pod counts as failed only when its phase is Failed.
func failed(job *batchv1.Job, pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodFailed || terminating(pod) && !onlyFailedReplaced(job)
}

// onlyFailedReplaced reports whether a job replaces pods only after they have ended.
func onlyFailedReplaced(job *batchv1.Job) bool {
	p := job.Spec.PodReplacementPolicy
	return p != nil && *p == batchv1.Failed || job.Spec.PodFailurePolicy != nil
}

func indexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion
}

func suspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

// finished reports whether a job is complete or failed.
func finished(job *batchv1.Job) bool {
	return isTrue(job, batchv1.JobComplete) || isTrue(job, batchv1.JobFailed)
}

// foreign reports whether another controller than this one manages a job.
func foreign(job *batchv1.Job) bool {
	return job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batchv1.JobControllerName
}

// indexFailures returns how often earlier pods with the same index as this pod failed: the number
// of failures that count towards the limit, and the number of failures that the failure policy
// ignores.
func indexFailures(pod *v1.Pod) (counted, ignored int32) {
	return count(pod, batchv1.JobIndexFailureCountAnnotation), count(pod, batchv1.JobIndexIgnoredFailureCountAnnotation)
}

func count(pod *v1.Pod, annotation string) int32 {
	n, err := strconv.Atoi(pod.Annotations[annotation])
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0
	}
	return int32(n)
}

// newPod returns a pod for a job. index is its completion index or noIndex. predecessor is the last
// failed pod with this index, or nil if none has failed.
func newPod(job *batchv1.Job, index int, predecessor *v1.Pod) *v1.Pod {
	pod := controller.NewPodFromTemplate(&job.Spec.Template, job, kind)
	if !tracked(pod) {
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if index == noIndex {
		return pod
	}
	text := strconv.Itoa(index)
	pod.GenerateName = indexedPrefix(job.Name, index)
	pod.Spec.Hostname = fmt.Sprintf("%s-%d", job.Name, index)
	pod.Labels = withEntry(pod.Labels, batchv1.JobCompletionIndexAnnotation, text)
	pod.Annotations = withEntry(pod.Annotations, batchv1.JobCompletionIndexAnnotation, text)
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			addIndexVariable(&list[i])
		}
	}
	if job.Spec.BackoffLimitPerIndex != nil {
		inheritFailures(job, pod, predecessor)
	}
	return pod
}

func withEntry(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// maxGenerated is the maximum length of a prefix for generated names. The API server truncates
// longer prefixes.
const maxGenerated = 63 - 5

func indexedPrefix(name string, index int) string {
	suffix := fmt.Sprintf("-%d-", index)
	return name[:min(len(name), maxGenerated-len(suffix))] + suffix
}

const indexVariable = "JOB_COMPLETION_INDEX"

// addIndexVariable adds the environment variable JOB_COMPLETION_INDEX to a container, unless the
// container already has a variable of this name.
func addIndexVariable(c *v1.Container) {
	if slices.ContainsFunc(c.Env, func(e v1.EnvVar) bool { return e.Name == indexVariable }) {
		return
	}
	c.Env = append(c.Env, v1.EnvVar{Name: indexVariable, ValueFrom: &v1.EnvVarSource{
		FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']"},
	}})
}

func inheritFailures(job *batchv1.Job, pod, predecessor *v1.Pod) {
	var counted, ignored int32
	if predecessor != nil {
		counted, ignored = indexFailures(predecessor)
		if applyPolicy(job.Spec.PodFailurePolicy, predecessor).counts() {
			counted++
		} else {
			ignored++
		}
	}
	pod.Annotations = withEntry(pod.Annotations, batchv1.JobIndexFailureCountAnnotation, strconv.Itoa(int(counted)))
	if ignored > 0 {
		pod.Annotations = withEntry(pod.Annotations, batchv1.JobIndexIgnoredFailureCountAnnotation,
			strconv.Itoa(int(ignored)))
	}
}

// surplus returns n of the active pods to delete. If the job is Indexed, it also returns all pods
// with a duplicate index or an index that is too high, even if these are more than n.
func surplus(job *batchv1.Job, active []*v1.Pod, n int) []*v1.Pod {
	ranked := slices.Clone(active)
	slices.SortStableFunc(ranked, controller.DeletionOrder{}.Compare)
	var out, rest []*v1.Pod
	if indexed(job) {
		kept := sets.New[int]()
		// Keep only one pod of each index: the one that DeletionOrder deletes last.
		for _, pod := range slices.Backward(ranked) {
			i := indexOf(pod)
			if i == noIndex || i >= int(*job.Spec.Completions) || kept.Has(i) {
				out = append(out, pod)
				continue
			}
			kept.Insert(i)
			rest = append(rest, pod)
		}
		slices.Reverse(rest)
	} else {
		rest = ranked
	}
	if more := n - len(out); more > 0 {
		out = append(out, rest[:min(more, len(rest))]...)
	}
	return out
}
