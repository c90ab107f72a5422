// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// allow sets how many volumes the node can have according to the driver.
func (b *bench) allow(most int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.most = most
}

// allowed returns how many volumes the node can have according to its CSINode, or -1 if the CSINode
// does not say.
func allowed(t *testing.T, client kubernetes.Interface) int32 {
	t.Helper()
	n, err := client.StorageV1().CSINodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil || len(n.Spec.Drivers) != 1 {
		t.Fatalf("%v, %v", n, err)
	}
	if a := n.Spec.Drivers[0].Allocatable; a != nil && a.Count != nil {
		return *a.Count
	}
	return -1
}

// TestUpdated checks that a change of the number of volumes that the node can have is published if
// the driver has an update period.
func TestUpdated(t *testing.T) {
	client := cluster(t, false)
	b := newBench(t, client)
	b.allow(5)
	m := b.kubeletOf(func(string) time.Duration { return 10 * time.Millisecond })
	if n := allowed(t, client); n != 5 {
		t.Errorf("%d volumes after the registration", n)
	}
	b.allow(8)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	for allowed(t, client) != 8 {
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// A driver without an update period is not asked again.
	b.allow(9)
	quiet := b.kubelet()
	b.allow(10)
	if next, err := quiet.renew(t.Context()); err != nil || !next.IsZero() || allowed(t, client) != 9 {
		t.Errorf("next at %v, %v; %d volumes", next, err, allowed(t, client))
	}
}

// TestLimit checks the error if a volume cannot be attached. If the node has too many volumes and
// the driver has an update period, the error is a LimitError, and the kubelet immediately asks the
// driver how many volumes the node can have. Otherwise it is an ordinary error.
func TestLimit(t *testing.T) {
	client := cluster(t, true)
	b := newBench(t, client)
	i := id{"d", "v"}
	b.allow(5)
	period := time.Hour
	m := b.kubeletOf(func(string) time.Duration { return period })
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), "n", "application/merge-patch+json",
		[]byte(`{"status":{"volumesInUse":["`+i.String()+`"]}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	attachments := client.StorageV1().VolumeAttachments()
	a, err := attachments.Create(t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: AttachmentName("v", "d", "n")},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: "n",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.allow(3)
	for _, step := range []struct {
		code   codes.Code
		period time.Duration
		limit  bool
		most   int32
	}{
		{codes.Internal, time.Hour, false, 5},
		{codes.ResourceExhausted, 0, false, 5},
		{codes.ResourceExhausted, time.Hour, true, 3},
	} {
		period = step.period
		a.Status.AttachError = &storagev1.VolumeError{Time: metav1.Now(), Message: "no slot is free",
			ErrorCode: ptr.To(int32(step.code))}
		if a, err = attachments.UpdateStatus(t.Context(), a, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := m.attached(t.Context(), i)
		err = m.full(t.Context(), i.driver, err)
		limit := (*LimitError)(nil)
		if got := errors.As(err, &limit); got != step.limit ||
			!strings.Contains(err.Error(), "no slot is free") || allowed(t, client) != step.most {
			t.Errorf("%v, asked again after %v: got %v; %d volumes", step.code, step.period, err, allowed(t, client))
		}
	}
}
