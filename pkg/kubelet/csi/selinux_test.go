// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"errors"
	"slices"
	"strings"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/metrics/metricstest"
)

// driverMounts sets in the CSIDriver object whether the driver supports mounting with SELinux
// labels.
func driverMounts(t *testing.T, client kubernetes.Interface, can bool) {
	t.Helper()
	d, err := client.StorageV1().CSIDrivers().Get(t.Context(), "d", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Spec.SELinuxMount = ptr.To(can)
	if _, err := client.StorageV1().CSIDrivers().Update(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// flags returns the mount flags of the last calls that staged and that published a volume.
func (b *bench) flags() (stage, publish []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mountFlags["NodeStageVolume"], b.mountFlags["NodePublishVolume"]
}

func one(v Volume, labels ...string) Volume {
	v.PV.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	v.Labels = labels
	return v
}

// TestLabelledMounts checks the mount options of a volume. The volume is mounted with the label
// that its containers require if the driver supports that, and otherwise without a label.
func TestLabelledMounts(t *testing.T) {
	const l = "system_u:object_r:container_file_t:s0:c1,c2"
	for name, c := range map[string]struct {
		can    bool
		labels []string
		want   []string
		fails  string
	}{
		"with a label":                              {true, []string{l}, []string{"noatime", `context="` + l + `"`}, ""},
		"without a label":                           {true, nil, []string{"noatime"}, ""},
		"driver without support":                    {false, []string{l}, []string{"noatime"}, ""},
		"driver without support, containers differ": {false, []string{"a", "b"}, []string{"noatime"}, ""},
		"containers differ":                         {true, []string{"a", "b"}, nil, "multiple SELinux labels found: a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			client := cluster(t, false)
			driverMounts(t, client, c.can)
			b := newBench(t, client)
			v := one(b.volume("v", v1.PersistentVolumeFilesystem), c.labels...)
			v.PV.Spec.MountOptions = []string{"noatime"}
			for range 2 { // the second time, a restarted kubelet mounts the volume that is already mounted
				got, err := b.kubelet().Mount(t.Context(), pod("a"), v)
				if c.fails != "" {
					if err == nil || err.Error() != c.fails {
						t.Errorf("%v", err)
					}
					return
				}
				if stage, publish := b.flags(); err != nil || !slices.Equal(stage, c.want) || !slices.Equal(publish, c.want) {
					t.Errorf("staged with %q, published with %q, want %q; %v", stage, publish, c.want, err)
				}
				if want := len(c.want) > 1; got.Labelled != want {
					t.Errorf("labelled: %t, want %t", got.Labelled, want)
				}
			}
			if len(v.PV.Spec.MountOptions) != 1 {
				t.Errorf("options of the volume: %q", v.PV.Spec.MountOptions)
			}
			if err := b.kubelet().Teardown(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOtherLabel checks that a volume that is still staged with another label is unstaged before it
// is staged with the label of the next pod, even after a restart of the kubelet. It also checks
// that the label does not change for a pod that uses the volume.
func TestOtherLabel(t *testing.T) {
	client := cluster(t, false)
	driverMounts(t, client, true)
	b := newBench(t, client)
	first, v := b.kubelet(), b.volume("v", v1.PersistentVolumeFilesystem)
	if _, err := first.Mount(t.Context(), pod("a"), one(v, "x")); err != nil {
		t.Fatal(err)
	}
	if got, err := first.Mount(t.Context(), pod("a"), one(v, "y")); err != nil || !got.Labelled {
		t.Errorf("again, with another label: %+v, %v", got, err)
	}
	if _, publish := b.flags(); !slices.Equal(publish, []string{`context="x"`}) {
		t.Errorf("published again with %q", publish)
	}
	b.answer("NodeUnstageVolume", codes.Internal)
	if err := first.Teardown(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	next := b.kubelet()
	if _, err := next.Mount(t.Context(), pod("b"), one(v, "y")); err == nil ||
		!strings.Contains(err.Error(), `has the SELinux label "x", not "y"`) {
		t.Errorf("mounted while it is staged with another label: %v", err)
	}
	b.answer("NodeUnstageVolume", codes.OK)
	if _, err := next.Mount(t.Context(), pod("b"), one(v, "y")); err != nil {
		t.Fatal(err)
	}
	if stage, _ := b.flags(); !slices.Equal(stage, []string{`context="y"`}) {
		t.Errorf("staged with %q", stage)
	}
	shared := one(v)
	shared.PV.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
	if _, err := next.Mount(t.Context(), pod("c"), shared); !errors.Is(err, errLabelled) {
		t.Errorf("mounted for another pod: %v", err)
	}
	if err := errors.Join(next.Teardown(t.Context(), "b"), next.sweep(t.Context())); err != nil {
		t.Fatal(err)
	}
	if left := b.leftovers(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// noteFlags records the mount flags of a call to the driver.
func (b *bench) noteFlags(call string, req any) {
	if r, ok := req.(interface{ GetVolumeCapability() *csi.VolumeCapability }); ok {
		if b.mountFlags == nil {
			b.mountFlags = map[string][]string{}
		}
		b.mountFlags[call] = r.GetVolumeCapability().GetMount().GetMountFlags()
	}
}

// TestLabelsAreCounted checks the metrics of SELinux labels. A volume that is mounted with a label is counted
// once, although several pods use it or the first attempts to stage it fail, and again after no pod has used it.
// Each pod is counted once for each volume that cannot be mounted because of its label.
func TestLabelsAreCounted(t *testing.T) {
	client := cluster(t, false)
	driverMounts(t, client, true)
	b, r := newBench(t, client), prometheus.NewPedanticRegistry()
	b.metrics = metrics.NewStorage(r)
	k, v := b.kubelet(), b.volume("v", v1.PersistentVolumeFilesystem)
	if _, err := k.Mount(t.Context(), pod("a"), one(v, "x", "y")); err == nil {
		t.Error("mounted with two labels")
	}
	for range 2 {
		if _, err := k.Mount(t.Context(), pod("a"), one(v, "x")); err != nil {
			t.Fatal(err)
		}
	}
	b.answer("NodeUnstageVolume", codes.Internal)
	if err := k.Teardown(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Mount(t.Context(), pod("b"), one(v, "y")); err == nil {
		t.Error("mounted while it is staged with another label")
	}
	b.answer("NodeUnstageVolume", codes.OK)
	if _, err := k.Mount(t.Context(), pod("b"), one(v)); err != nil {
		t.Fatal(err)
	}
	if err := k.Teardown(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	shared := one(b.volume("w", v1.PersistentVolumeFilesystem), "x")
	shared.PV.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
	b.answer("NodeStageVolume", codes.Internal)
	for range 2 {
		if _, err := k.Mount(t.Context(), pod("a"), shared); err == nil {
			t.Error("mounted although the driver fails")
		}
	}
	b.answer("NodeStageVolume", codes.OK)
	for range 2 { // the second time, the volume is mounted again after all pods have ended
		for _, name := range []string{"a", "b"} {
			if _, err := k.Mount(t.Context(), pod(name), shared); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(k.Teardown(t.Context(), "a"), k.Teardown(t.Context(), "b")); err != nil {
			t.Fatal(err)
		}
	}
	metricstest.Expect(t, metricstest.Scrape(t, r), map[string]float64{
		`volume_manager_selinux_pod_context_mismatch_errors_total{access_mode="RWOP"}`: 1,
		`volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="RWOP",` +
			`volume_plugin="kubernetes.io/csi/d"}`: 1,
		`volume_manager_selinux_volumes_admitted_total{access_mode="RWOP",volume_plugin="kubernetes.io/csi/d"}`: 1,
		`volume_manager_selinux_volumes_admitted_total{access_mode="RWX",volume_plugin="kubernetes.io/csi/d"}`:  2,
	})
}
