// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// recordName is the ConfigMap in kube-system with the time of the cluster's last backup, under recordTime.
// Backups are in directories and buckets that only some machines see, so the cluster cannot look for them.
const (
	recordName = "keelson-backup"
	recordTime = "time"
)

// Record stores in the cluster when its last backup was made, unless a later one is recorded.
func Record(ctx context.Context, client kubernetes.Interface, made time.Time) error {
	// A damaged record is replaced. If the API cannot be reached, the next request fails too.
	if last, err := Last(ctx, client); err == nil && !last.Before(made.Truncate(time.Second)) {
		return nil
	}
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	record := &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: recordName}, Data: map[string]string{recordTime: made.UTC().Format(time.RFC3339)},
	}
	_, err := maps.Update(ctx, record, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, record, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("record the backup: %w", err)
	}
	return nil
}

// Last returns when the cluster's last backup was made, or the zero time if none is recorded.
func Last(ctx context.Context, client kubernetes.Interface) (time.Time, error) {
	record, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, recordName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("last backup: %w", err)
	}
	made, err := time.Parse(time.RFC3339, record.Data[recordTime])
	if err != nil {
		return time.Time{}, fmt.Errorf("last backup: %w", err)
	}
	return made, nil
}
