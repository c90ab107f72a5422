// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package transcode_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/transcode"
)

func TestPicker(t *testing.T) {
	p := pod()
	p.Spec.Volumes = append(p.Spec.Volumes,
		corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret"}}})
	raw, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		paths []string
		want  corev1.Pod
	}{
		"no paths": {},
		"scalars and structs": {
			[]string{"metadata.labels", "metadata.name", "spec.nodeName", "status.phase"},
			corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: p.Labels},
				Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: p.Status.Phase}},
		},
		"fields of list elements": {
			[]string{"spec.containers.name"},
			corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c0"}, {Name: "c1"}}}},
		},
		"inlined fields": {
			[]string{"spec.volumes.secret.secretName", "spec.volumes.configMap"},
			corev1.Pod{Spec: corev1.PodSpec{
				Volumes: []corev1.Volume{{},
					{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret"}}}}}},
		},
		"a struct, then one of its fields": {
			[]string{"status", "status.phase"}, corev1.Pod{Status: p.Status},
		},
		"a field of a struct, then the struct": {
			[]string{"status.phase", "status"}, corev1.Pod{Status: p.Status},
		},
	} {
		picker, err := transcode.NewTypes().Picker(p, c.paths...)
		if err != nil {
			t.Fatal(name, err)
		}
		picked, ok := picker.Append(nil, raw)
		var got corev1.Pod
		if err := got.Unmarshal(picked); err != nil || !ok {
			t.Fatal(name, ok, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for n := range raw { // a truncated message is malformed, or has only some of the fields
			_, _ = picker.Append(nil, raw[:n])
		}
	}
	for _, path := range []string{"spec.nothing", "metadata.labels.app", "spec.nodeName.x", ""} {
		if _, err := transcode.NewTypes().Picker(p, path); err == nil {
			t.Errorf("%q is a path", path)
		}
	}
}

// FuzzPicker checks on arbitrary bytes: if the whole message can be decoded, so can the picked
// message, and the picked fields have the same values.
func FuzzPicker(f *testing.F) {
	raw, err := pod().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	picker, err := transcode.NewTypes().Picker(&corev1.Pod{}, "metadata.name", "spec.containers.image", "status.phase")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		picked, ok := picker.Append(nil, raw)
		var whole, part corev1.Pod
		if whole.Unmarshal(raw) != nil || !ok {
			return
		}
		if err := part.Unmarshal(picked); err != nil {
			t.Fatal(err)
		}
		if part.Name != whole.Name || part.Status.Phase != whole.Status.Phase ||
			len(part.Spec.Containers) != len(whole.Spec.Containers) {
			t.Fatalf("%v of %v", &part, &whole)
		}
		for i := range part.Spec.Containers {
			if part.Spec.Containers[i].Image != whole.Spec.Containers[i].Image {
				t.Fatalf("%v of %v", &part, &whole)
			}
		}
	})
}
