// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumerestrictions_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/scheduler/plugins/plugintest"
	"keelson.dev/keelson/pkg/scheduler/plugins/volumerestrictions"
	"keelson.dev/scheduling"
)

// claims is a VolumeView in which only one pod may use each claim. The cell has the pods that use
// them.
type claims struct {
	scheduling.VolumeView
	view *plugintest.View
	mode v1.PersistentVolumeAccessMode
}

func (c claims) Claim(string, string) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{c.mode},
	}}
}

func (c claims) ClaimUsers(namespace, name string) []types.UID {
	return c.view.ClaimUsers(namespace, name)
}

func volume(s v1.VolumeSource) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{VolumeSource: s}) }
}

func claim(name string) func(*v1.Pod) {
	return volume(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
}

func gce(name string, readOnly bool) func(*v1.Pod) {
	return volume(v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: name,
		ReadOnly: readOnly}})
}

func rbd(monitor, image string) func(*v1.Pod) {
	return volume(v1.VolumeSource{RBD: &v1.RBDVolumeSource{CephMonitors: []string{"m0", monitor}, RBDPool: "p",
		RBDImage: image}})
}

func iscsi(iqn string, readOnly bool) func(*v1.Pod) {
	return volume(v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{IQN: iqn, ReadOnly: readOnly}})
}

func ebs(id string, readOnly bool) func(*v1.Pod) {
	return volume(v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: id,
		ReadOnly: readOnly}})
}

func TestFilter(t *testing.T) {
	const (
		inUse = "~[node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode " +
			"already in-use by another pod]"
		disk = "~[node(s) had no available disk]"
	)
	nowhere, onA := map[string]string{"a": inUse, "b": inUse}, map[string]string{"a": disk}
	for name, tc := range map[string]struct {
		mode       v1.PersistentVolumeAccessMode
		there, pod func(*v1.Pod)
		want       map[string]string
	}{
		"claim of one pod":          {v1.ReadWriteOncePod, claim("c"), claim("c"), nowhere},
		"another claim":             {v1.ReadWriteOncePod, claim("c"), claim("d"), nil},
		"claim of one node":         {v1.ReadWriteOnce, claim("c"), claim("c"), nil},
		"same disk":                 {"", gce("d", false), gce("d", true), onA},
		"same disk, read only":      {"", gce("d", true), gce("d", true), nil},
		"other disk":                {"", gce("d", false), gce("e", false), nil},
		"EBS is never shared":       {"", ebs("d", true), ebs("d", true), onA},
		"iSCSI":                     {"", iscsi("q", false), iscsi("q", false), onA},
		"iSCSI, read only":          {"", iscsi("q", true), iscsi("q", true), nil},
		"RBD with a common monitor": {"", rbd("m1", "i"), rbd("m2", "i"), onA},
		"RBD, other image":          {"", rbd("m1", "i"), rbd("m1", "j"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			view := plugintest.NewView([]*v1.Node{plugintest.Node("a"), plugintest.Node("b")},
				plugintest.Pod("o", plugintest.On("a"), tc.there))
			view.VolumeView = claims{view: view, mode: tc.mode}
			got := view.Reject(volumerestrictions.New(), plugintest.Pod("p", tc.pod))
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestAdjust checks that the filter accepts a node after Adjust removes the pod that uses the claim
// from it.
func TestAdjust(t *testing.T) {
	view := plugintest.NewView([]*v1.Node{plugintest.Node("a")}, plugintest.Pod("o", plugintest.On("a"), claim("c")))
	view.VolumeView = claims{view: view, mode: v1.ReadWriteOncePod}
	f, _ := volumerestrictions.New().Filter.Compile(view, view.NewPod(plugintest.Pod("p", claim("c"))))
	a := view.NodeByName("a")
	user := a.Pods["o"]
	f.Adjust(a, user, -1)
	if st := f.Check(a); st != nil {
		t.Error("without the user:", st.Reasons)
	}
	f.Adjust(a, user, 1)
	if f.Check(a) == nil {
		t.Error("with the user again: fits")
	}
}
