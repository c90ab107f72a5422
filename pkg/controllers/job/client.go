// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// client is hands with an API server.
type client struct {
	api  kubernetes.Interface
	pods controller.Pods
}

func (c client) create(ctx context.Context, job *batchv1.Job, pod *v1.Pod) error {
	_, err := c.pods.Create(ctx, job, pod)
	return err
}

func (c client) remove(ctx context.Context, job *batchv1.Job, pod *v1.Pod) error {
	return c.pods.Delete(ctx, job, pod)
}

// release changes a pod only if it is still the one that was seen.
func (c client) release(ctx context.Context, pod *v1.Pod) error {
	if !tracked(pod) {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, pod.UID, batchv1.JobTrackingFinalizer)
	_, err := c.api.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (c client) writeStatus(ctx context.Context, job *batchv1.Job) (*batchv1.Job, error) {
	return c.api.BatchV1().Jobs(job.Namespace).UpdateStatus(ctx, job, metav1.UpdateOptions{})
}
