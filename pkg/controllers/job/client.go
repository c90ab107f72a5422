// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// client implements the interface hands with requests to an API server.
type client struct {
	api  kubernetes.Interface
	pods controller.Pods
}

func (c client) create(ctx context.Context, job *batchv1.Job, pod *v1.Pod) (types.UID, error) {
	return c.pods.Create(ctx, job, "", pod)
}

func (c client) remove(ctx context.Context, job *batchv1.Job, pod *v1.Pod) error {
	return c.pods.Delete(ctx, job, pod)
}

func (c client) release(ctx context.Context, pod *v1.Pod) error { return c.unfinalize(ctx, pod, "") }

// releaseOrphan removes the tracking finalizer from a pod. It fails if the pod has changed, because
// a job may have adopted it in the meantime.
func (c client) releaseOrphan(ctx context.Context, pod *v1.Pod) error {
	return c.unfinalize(ctx, pod, pod.ResourceVersion)
}

// unfinalize removes the tracking finalizer from a pod, if the pod still has the same UID and,
// unless version is "", the given resource version.
func (c client) unfinalize(ctx context.Context, pod *v1.Pod, version string) error {
	if !tracked(pod) {
		return nil
	}
	metadata := map[string]any{"uid": pod.UID,
		"$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer}}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("finalizer: %w", err)
	}
	_, err = c.api.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("finalizer of pod: %w", err)
	}
	return nil
}

func (c client) writeStatus(ctx context.Context, job *batchv1.Job) (*batchv1.Job, error) {
	return c.api.BatchV1().Jobs(job.Namespace).UpdateStatus(ctx, job, metav1.UpdateOptions{})
}
