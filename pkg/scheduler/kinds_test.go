// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"keelson.dev/keelson/pkg/scheduler/intake"
	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

// TestKindsEqualCompile checks that a pod which shares its spec with other pods gets the same
// compiled form as without sharing, whichever of its other fields differ.
func TestKindsEqualCompile(t *testing.T) {
	p := defaultProfile(t)
	rapid.Check(t, func(t *rapid.T) {
		r, err := intake.NewReader()
		if err != nil {
			t.Fatal(err)
		}
		k := kinds{}
		for i := range 20 {
			raw := testPod(t, i)
			raw.Namespace = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace")
			switch rapid.IntRange(0, 6).Draw(t, "own") {
			case 0:
				raw.DeletionTimestamp = &metav1.Time{}
			case 1:
				raw.Spec.Volumes = []v1.Volume{
					{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: fmt.Sprint("image", i)}}}}
			case 2:
				raw.Status.ContainerStatuses = []v1.ContainerStatus{
					{Name: "c", AllocatedResources: v1.ResourceList{
						v1.ResourceCPU: *resource.NewMilliQuantity(int64(1000*i), resource.DecimalSI)}}}
			case 3:
				raw.Spec.NodeName = fmt.Sprint("n", i)
			}
			enc, err := raw.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			pod, err := r.Pod(enc)
			if err != nil {
				t.Fatal(err)
			}
			got, err := k.compile(p, pod)
			if err != nil {
				t.Fatal(err)
			}
			want, err := compileAlone(p, pod)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want.pod, got.pod, cmpopts.IgnoreFields(scheduling.Pod{}, "Group")); d != "" ||
				want.class != got.class {
				t.Fatalf("class %q, want %q; pod (-want +got):\n%s", got.class, want.class, d)
			}
		}
	})
}

func TestKindsAreBounded(t *testing.T) {
	p, k := defaultProfile(t), kinds{}
	for i := range maxKinds + 10 {
		pod := asks(100, func(p *v1.Pod) { p.Labels = map[string]string{"own": fmt.Sprint(i)} })
		if _, err := k.compile(p, pod); err != nil {
			t.Fatal(err)
		}
	}
	if len(k) > maxKinds {
		t.Errorf("%d kinds are kept", len(k))
	}
}

// BenchmarkCompile compiles pods of one controller, which share their spec.
func BenchmarkCompile(b *testing.B) {
	p := defaultProfile(b)
	read, err := intake.NewReader()
	if err != nil {
		b.Fatal(err)
	}
	var items []*queue.Item
	for i := range 1000 {
		enc, err := asks(100, func(p *v1.Pod) {
			p.Name, p.UID, p.Labels = fmt.Sprint("p", i), types.UID(fmt.Sprint(i)),
				map[string]string{"app": "x", "pod-template-hash": "6b8d"}
		}).Marshal()
		if err != nil {
			b.Fatal(err)
		}
		pod, err := read.Pod(enc)
		if err != nil {
			b.Fatal(err)
		}
		items = append(items, &queue.Item{Pod: pod})
	}
	k := kinds{}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		item := items[i%len(items)]
		item.Memo = nil
		if _, err := k.of(p, item); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
