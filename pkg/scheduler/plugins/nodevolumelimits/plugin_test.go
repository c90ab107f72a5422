// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodevolumelimits_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/scheduler/plugins/nodevolumelimits"
	"keelson.dev/keelson/pkg/scheduler/plugins/plugintest"
	"keelson.dev/scheduling"
)

// storage is a VolumeView in which claim c1 is bound to volume v1 of a CSI driver, c2 to v2, and so
// on. Claims whose name starts with w have no volume yet. limit is the maximum number of volumes of
// each node.
type storage struct {
	scheduling.VolumeView
	limit    int32
	attached []string
	// missing means that nodes lack the driver, and that it has preventPodSchedulingIfMissing.
	missing bool
}

func (s storage) Driver(string) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: &s.missing}}
}

func (storage) Claim(namespace, name string) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	switch name[0] {
	case 'c':
		c.Spec.VolumeName = "v" + name[1:]
	case 'w':
		c.Spec.StorageClassName = ptr.To("fast")
	default:
		return nil
	}
	return c
}

func (storage) Volume(name string) *v1.PersistentVolume {
	return &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
		CSI: &v1.CSIPersistentVolumeSource{Driver: "example.com/d", VolumeHandle: name},
	}}}
}

func (storage) Class(string) *storagev1.StorageClass {
	return &storagev1.StorageClass{Provisioner: "example.com/d"}
}

func (s storage) CSINode(string) *storagev1.CSINode {
	if s.missing {
		return nil
	}
	d := storagev1.CSINodeDriver{Name: "example.com/d"}
	if s.limit > 0 {
		d.Allocatable = &storagev1.VolumeNodeResources{Count: &s.limit}
	}
	return &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{d}}}
}

func (s storage) Attachments(string) []*storagev1.VolumeAttachment {
	var out []*storagev1.VolumeAttachment
	for _, name := range s.attached {
		out = append(out, &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "example.com/d", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
		}})
	}
	return out
}

func claiming(names ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for i, name := range names {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint(i), VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
}

// TestDriverMissing checks that a node is rejected if it lacks a driver with
// preventPodSchedulingIfMissing.
func TestDriverMissing(t *testing.T) {
	view := plugintest.NewView([]*v1.Node{plugintest.Node("n")})
	view.VolumeView = storage{missing: true}
	want := map[string]string{"n": "~[example.com/d CSI driver is not installed on the node]"}
	got := view.Reject(nodevolumelimits.New(), plugintest.Pod("p", claiming("c1")))
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFilter(t *testing.T) {
	const exceeded = "~[node(s) exceed max volume count]"
	for name, tc := range map[string]struct {
		limit      int32
		attached   []string
		there, pod []string
		want       map[string]string
	}{
		"no limit":              {0, nil, []string{"c1", "c2"}, []string{"c3"}, nil},
		"room":                  {2, nil, []string{"c1"}, []string{"c2"}, nil},
		"full":                  {2, nil, []string{"c1", "c2"}, []string{"c3"}, map[string]string{"n": exceeded}},
		"volume is there":       {2, nil, []string{"c1", "c2"}, []string{"c2"}, nil},
		"two at once":           {2, nil, []string{"c1"}, []string{"c2", "c3"}, map[string]string{"n": exceeded}},
		"attached without pod":  {2, []string{"v8", "v9"}, nil, []string{"c1"}, map[string]string{"n": exceeded}},
		"attached to the pod's": {2, []string{"v1", "v9"}, []string{"c1"}, []string{"c1"}, nil},
		"not provisioned yet":   {1, nil, []string{"w1"}, []string{"w2"}, map[string]string{"n": exceeded}},
		"no claim": {1, nil, nil, []string{"missing"}, map[string]string{
			"": `[looking up PVC default/missing: persistentvolumeclaim "missing" not found]`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			view := plugintest.NewView([]*v1.Node{plugintest.Node("n")},
				plugintest.Pod("o", plugintest.On("n"), claiming(tc.there...)))
			view.VolumeView = storage{limit: tc.limit, attached: tc.attached}
			got := view.Reject(nodevolumelimits.New(), plugintest.Pod("p", claiming(tc.pod...)))
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
