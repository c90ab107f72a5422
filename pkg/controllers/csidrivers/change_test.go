// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// attributesClass creates a VolumeAttributesClass.
func (w *world) attributesClass(t *testing.T, name, driver string, parameters map[string]string) {
	t.Helper()
	if _, err := w.Client.StorageV1().VolumeAttributesClasses().Create(t.Context(), &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driver, Parameters: parameters,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// want changes the VolumeAttributesClass that a claim requests.
func (w *world) want(t *testing.T, claim, class string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"volumeAttributesClassName":%q}}`, class)
	if _, err := w.Client.CoreV1().PersistentVolumeClaims("default").Patch(t.Context(), claim,
		types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// changed waits until the status of a claim, its volume and the driver show that the volume has the
// given VolumeAttributesClass.
func (w *world) changed(t *testing.T, name, class, iops string) {
	t.Helper()
	controllertest.Eventually(t, "the volume has class "+class, func(ctx context.Context) (any, bool) {
		c, err := w.Client.CoreV1().PersistentVolumeClaims("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil || c.Spec.VolumeName == "" {
			return err, false
		}
		v, err := w.Client.CoreV1().PersistentVolumes().Get(ctx, c.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return err, false
		}
		var kept struct{ Attributes map[string]string }
		b, err := os.ReadFile(filepath.Join(w.driver.Root, "volumes", v.Spec.CSI.VolumeHandle, "meta.json"))
		if err == nil {
			err = json.Unmarshal(b, &kept)
		}
		s := c.Status
		s.Conditions = withoutConditions(s.Conditions, v1.PersistentVolumeClaimUnused) // set by another controller
		return []any{s, v.Spec, kept, err}, err == nil && kept.Attributes["iops"] == iops &&
			ptr.Deref(v.Spec.VolumeAttributesClassName, "") == class &&
			ptr.Deref(s.CurrentVolumeAttributesClassName, "") == class && s.ModifyVolumeStatus == nil && len(s.Conditions) == 0
	})
}

// stuck waits until the change of a claim's attributes has the given status, and returns the reason
// of the claim's error condition, or "" if it has none.
func (w *world) stuck(t *testing.T, name string, in v1.PersistentVolumeClaimModifyVolumeStatus) string {
	t.Helper()
	var reason string
	controllertest.Eventually(t, "the change is "+string(in), func(ctx context.Context) (any, bool) {
		c, err := w.Client.CoreV1().PersistentVolumeClaims("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil || c.Status.ModifyVolumeStatus == nil || c.Status.ModifyVolumeStatus.Status != in {
			return c, false
		}
		reason = ""
		for _, x := range c.Status.Conditions {
			if x.Type == v1.PersistentVolumeClaimVolumeModifyVolumeError {
				reason = x.Reason
			}
		}
		return c, true
	})
	return reason
}

// TestAttributes checks that volumes are created with the requested attributes and can be changed
// later, that a rejection by the driver is reported, and that a change to another class succeeds
// after a rejection.
func TestAttributes(t *testing.T) {
	w := newWorld(t)
	defer (&process{driver: w.conn}).start(t, w.Server)()
	w.attributesClass(t, "slow", name, map[string]string{"iops": "1"})
	w.attributesClass(t, "quick", name, map[string]string{"iops": "9"})
	w.attributesClass(t, "wrong", name, map[string]string{"colour": "red"})
	w.attributesClass(t, "foreign", "other.example.com", map[string]string{"iops": "2"})
	c := claim("c")
	c.Spec.VolumeAttributesClassName = ptr.To("slow")
	if _, err := w.Client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), c,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.changed(t, "c", "slow", "1")
	w.want(t, "c", "quick")
	w.changed(t, "c", "quick", "9")
	for _, class := range []string{"wrong", "foreign"} {
		w.want(t, "c", class)
		if reason := w.stuck(t, "c", v1.PersistentVolumeClaimModifyVolumeInfeasible); reason != "InvalidArgument" {
			t.Errorf("of class %s: reason %q", class, reason)
		}
		w.want(t, "c", "slow")
		w.changed(t, "c", "slow", "1")
	}
	w.want(t, "c", "later")
	w.stuck(t, "c", v1.PersistentVolumeClaimModifyVolumePending)
	w.attributesClass(t, "later", name, map[string]string{"iops": "5"})
	w.changed(t, "c", "later", "5")
}

// TestChangeBeforeVolume checks that a volume is changed, and another one expanded, if the controller
// sees the changes of their claims before it sees the volumes.
func TestChangeBeforeVolume(t *testing.T) {
	w := newWorld(t)
	volumes := make(chan struct{})
	defer (&process{driver: w.conn, volumes: volumes}).start(t, w.Server)()
	release := sync.OnceFunc(func() { close(volumes) })
	defer release()
	w.attributesClass(t, "slow", name, map[string]string{"iops": "1"})
	w.attributesClass(t, "quick", name, map[string]string{"iops": "9"})
	claims := w.Client.CoreV1().PersistentVolumeClaims("default")
	// Each round creates a claim, waits until it is bound, and changes it. By the time at which the
	// claim of the next round is bound, the controller has usually handled this change.
	for _, tc := range []struct{ id, change string }{
		{"changed", `{"spec":{"volumeAttributesClassName":"quick"}}`},
		{"grown", `{"spec":{"resources":{"requests":{"storage":"3Mi"}}}}`},
		{"last", `{}`},
	} {
		c := claim(tc.id)
		c.Spec.VolumeAttributesClassName = ptr.To("slow")
		if _, err := claims.Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.changed(t, tc.id, "slow", "1")
		if _, err := claims.Patch(t.Context(), tc.id, types.MergePatchType, []byte(tc.change),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	release()
	w.changed(t, "changed", "quick", "9")
	controllertest.Eventually(t, "the driver has expanded the volume", func(ctx context.Context) (any, bool) {
		got, err := claims.Get(ctx, "grown", metav1.GetOptions{})
		return got, err == nil && got.Status.AllocatedResourceStatuses[v1.ResourceStorage] ==
			v1.PersistentVolumeClaimNodeResizePending
	})
}

// TestKilledDuringChange kills the controller before and after each step of a change of attributes,
// and checks that the next process completes the change.
func TestKilledDuringChange(t *testing.T) {
	w := newWorld(t)
	w.attributesClass(t, "quick", name, map[string]string{"iops": "9"})
	settled := (&process{driver: w.conn}).start(t, w.Server)
	for _, after := range []bool{false, true} {
		for at := 1; at <= 4; at++ {
			id := fmt.Sprintf("c%d-%v", at, after)
			if _, err := w.Client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), claim(id),
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			w.changed(t, id, "", "")
		}
	}
	settled()
	for _, after := range []bool{false, true} {
		for at := 1; at <= 4; at++ {
			t.Run(fmt.Sprintf("after %v step %d", after, at), func(t *testing.T) {
				p := &process{driver: w.conn, at: at, after: after, killed: make(chan struct{})}
				w.alive(t, p)
				id := fmt.Sprintf("c%d-%v", at, after)
				w.want(t, id, "quick")
				w.changed(t, id, "quick", "9")
			})
		}
	}
}
