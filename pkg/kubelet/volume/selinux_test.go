// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/csi"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/metrics/metricstest"
)

// fileLabel returns the label that the test node gives to the files of a container. The type
// "unknown" is an error.
func fileLabel(o *v1.SELinuxOptions) (string, error) {
	if o.Type == "unknown" {
		return "", errors.New("no such type")
	}
	return "u:object_r:container_file_t:" + o.Level, nil
}

// TestLabels checks which labels are returned, and that none is returned if the label of a
// container is unknown or the volume must not be mounted with a label.
func TestLabels(t *testing.T) {
	level := func(l string) *v1.SELinuxOptions { return &v1.SELinuxOptions{Level: l} }
	container := func(volume string, o *v1.SELinuxOptions) v1.Container {
		return v1.Container{VolumeMounts: []v1.VolumeMount{{Name: volume}},
			SecurityContext: &v1.SecurityContext{SELinuxOptions: o}}
	}
	const file = "u:object_r:container_file_t:"
	for name, c := range map[string]struct {
		spec  v1.PodSpec
		off   bool
		want  []string
		fails bool
	}{
		"pod's label": {
			spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{SELinuxOptions: level("s0:c1")},
				Containers: []v1.Container{container("v", nil)}}, want: []string{file + "s0:c1"},
		},
		"container's label before the pod's": {
			spec: v1.PodSpec{
				SecurityContext: &v1.PodSecurityContext{SELinuxOptions: level("s0:c1")},
				InitContainers:  []v1.Container{container("v", level("s0:c2"))},
				Containers:      []v1.Container{container("v", nil), container("v", level("s0:c2"))},
			}, want: []string{file + "s0:c1", file + "s0:c2"},
		},
		"only containers with the volume": {
			spec: v1.PodSpec{Containers: []v1.Container{container("other", level("s0:c2")),
				container("v", level("s0:c1")), container("other", nil)}}, want: []string{file + "s0:c1"},
		},
		"a container without options": {
			spec: v1.PodSpec{Containers: []v1.Container{container("v", level("s0:c1")), container("v", nil)}},
			want: []string{file + "s0:c1"}},
		"no options": {spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{},
			Containers: []v1.Container{container("v", nil), {VolumeMounts: []v1.VolumeMount{{Name: "v"}}}}}},
		"label without a level": {
			spec: v1.PodSpec{Containers: []v1.Container{container("v", &v1.SELinuxOptions{Type: "container_t"})}}},
		"invalid label": {
			spec: v1.PodSpec{Containers: []v1.Container{
				container("v", &v1.SELinuxOptions{Type: "unknown", Level: "s0"})}}, fails: true},
		"a node without SELinux": {
			spec: v1.PodSpec{Containers: []v1.Container{container("v", level("s0:c1"))}}, off: true},
		"recursive labelling requested": {
			spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{
				SELinuxChangePolicy: ptr(v1.SELinuxChangePolicyRecursive)},
				Containers: []v1.Container{container("v", level("s0:c1"))}},
		},
		"default policy": {
			spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{
				SELinuxChangePolicy: ptr(v1.SELinuxChangePolicyMountOption)},
				Containers: []v1.Container{container("v", level("s0:c1"))}},
			want: []string{file + "s0:c1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Manager{cfg: Config{Label: fileLabel}}
			if c.off {
				m.cfg.Label = nil
			}
			got, err := m.labels(&v1.Pod{Spec: c.spec}, "v")
			if !slices.Equal(got, c.want) || (err != nil) != c.fails {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// TestUnknownLabelIsCounted checks that a volume with an invalid label is not mounted, and that the
// metric counts each attempt.
func TestUnknownLabelIsCounted(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := &Manager{cfg: Config{Label: fileLabel, Metrics: metrics.NewStorage(r)}}
	pod := &v1.Pod{Spec: v1.PodSpec{
		SecurityContext: &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Type: "unknown", Level: "s0"}},
		Containers:      []v1.Container{{VolumeMounts: []v1.VolumeMount{{Name: "v"}}}},
	}}
	pv := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{
		AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadOnlyMany},
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d"}},
	}}
	for range 2 {
		if _, err := m.makePersistent(t.Context(), pod, "v", pv, false); err == nil {
			t.Error("made")
		}
	}
	metricstest.Expect(t, metricstest.Scrape(t, r),
		map[string]float64{`volume_manager_selinux_container_errors_total{access_mode="ROX"}`: 2})
}

// TestLabelledIsNotRelabelled checks that the runtime must relabel a volume unless it was mounted
// with a label.
func TestLabelledIsNotRelabelled(t *testing.T) {
	for _, labelled := range []bool{false, true} {
		m := &Manager{cfg: Config{Drivers: &drivers{path: t.TempDir(), labelled: labelled}}}
		p, err := m.makeDriven(t.Context(), &v1.Pod{}, csi.Volume{Labels: []string{"l"}})
		if err != nil {
			t.Fatal(err)
		}
		c := &v1.Container{VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}}}
		got, err := Mounts{ready: map[string]prepared{"v": p}}.ForContainer(&v1.Pod{}, c, Options{})
		if err != nil || got[0].SelinuxRelabel == labelled {
			t.Errorf("labelled %t: relabelled %t, %v", labelled, got[0].SelinuxRelabel, err)
		}
	}
}

// TestLabelOptions checks that options that are not set keep the node's default.
func TestLabelOptions(t *testing.T) {
	if got := strings.Join(labelOptions(&v1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s0:c1,c2"}),
		" "); got != "user:u role:r type:t level:s0:c1,c2" {
		t.Error(got)
	}
	if got := labelOptions(&v1.SELinuxOptions{Level: "s0"}); !slices.Equal(got, []string{"level:s0"}) {
		t.Error(got)
	}
}
