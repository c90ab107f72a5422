// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumezone_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/scheduler/plugins/plugintest"
	"keelson.dev/keelson/pkg/scheduler/plugins/volumezone"
	"keelson.dev/scheduling"
)

// storage is a VolumeView with one claim, one volume and one storage class.
type storage struct {
	scheduling.VolumeView
	claim  *v1.PersistentVolumeClaim
	volume *v1.PersistentVolume
	class  *storagev1.StorageClass
}

func (s storage) Claim(string, string) *v1.PersistentVolumeClaim { return s.claim }
func (s storage) Volume(string) *v1.PersistentVolume             { return s.volume }
func (s storage) Class(string) *storagev1.StorageClass           { return s.class }

func TestFilter(t *testing.T) {
	const conflict = "[node(s) had no available volume zone]"
	bound := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{VolumeName: "v"}}
	unbound := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast")}}
	volume := func(key, value string) *v1.PersistentVolume {
		return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{key: value}}}
	}
	class := func(mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
		return &storagev1.StorageClass{VolumeBindingMode: &mode}
	}
	nodes := []*v1.Node{
		plugintest.Node("x", plugintest.InZone("x")), plugintest.Node("y",
			plugintest.InZone("y")), plugintest.Node("none"),
		plugintest.Node("old", func(n *v1.Node) { n.Labels[v1.LabelFailureDomainBetaZone] = "x" }),
	}
	for name, tc := range map[string]struct {
		storage storage
		want    map[string]string
	}{
		"zone": {storage{claim: bound, volume: volume(v1.LabelTopologyZone, "x")},
			map[string]string{"y": conflict, "old": conflict}},
		"old label": {storage{claim: bound, volume: volume(v1.LabelFailureDomainBetaZone, "x")},
			map[string]string{"y": conflict}},
		"several zones": {storage{claim: bound, volume: volume(v1.LabelTopologyZone, "x__y")},
			map[string]string{"old": conflict}},
		"region that no node has": {
			storage{claim: bound, volume: volume(v1.LabelTopologyRegion, "r")}, map[string]string{"x": conflict,
				"y": conflict, "old": conflict},
		},
		"no label":  {storage{claim: bound, volume: &v1.PersistentVolume{}}, map[string]string{}},
		"no claim":  {storage{}, map[string]string{"": `[persistentvolumeclaim "c" not found]`}},
		"no volume": {storage{claim: bound}, map[string]string{"": `[persistentvolume "v" not found]`}},
		"first consumer": {storage{claim: unbound, class: class(storagev1.VolumeBindingWaitForFirstConsumer)},
			map[string]string{}},
		"unbound": {storage{claim: unbound, class: class(storagev1.VolumeBindingImmediate)},
			map[string]string{"": "[PersistentVolume had no name]"}},
		"no class": {storage{claim: unbound},
			map[string]string{"": `[storageclass.storage.k8s.io "fast" not found]`}},
	} {
		t.Run(name, func(t *testing.T) {
			view := plugintest.NewView(nodes)
			view.VolumeView = tc.storage
			pod := plugintest.Pod("p", func(p *v1.Pod) {
				p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
				}}}
			})
			if diff := cmp.Diff(tc.want, view.Reject(volumezone.New(), pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
