// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package transcode_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"keelson.dev/apiserver/transcode"
)

// pod is a typical pod with managed fields.
func pod() *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "production", Name: "web-7d4b9c6f5d-000123", UID: "0b9e1c5e-8f5c-4a53-9a4e-3f9f5d1c7a11",
		CreationTimestamp: metav1.Unix(1790000000, 0),
		Labels:            map[string]string{"app": "web", "pod-template-hash": "7d4b9c6f5d"},
		Annotations:       map[string]string{"prometheus.io/scrape": "true", "note": `a <b> & "c" é`},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web",
			UID: "u", Controller: new(true)}},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kubelet", Operation: "Update", APIVersion: "v1", Time: new(metav1.Unix(1790000001, 0)),
			FieldsType: "FieldsV1",
			FieldsV1: &metav1.FieldsV1{
				Raw: []byte(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:status":{}}},"f:phase":{}}}`)},
		}},
	}}
	p.Spec.NodeName, p.Spec.TerminationGracePeriodSeconds = "n1", new(int64(30))
	p.Spec.Volumes = []corev1.Volume{
		{Name: "v", VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("1Gi"))}}}}
	for i := range 2 {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: fmt.Sprint("c", i), Image: "registry.example.com/web:1", Args: []string{"--a", "--b"},
			Env: []corev1.EnvVar{{Name: "A", Value: "b"},
				{Name: "C", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("2000m"), "memory": resource.MustParse("1024Mi")},
			},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/",
					Port: intstr.FromString("http")}}, PeriodSeconds: 10},
		})
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{
		{Type: "Ready", Status: "True", LastTransitionTime: metav1.Unix(1790000002, 0)}, {Type: "PodScheduled"}}
	return p
}

func programOf(t testing.TB, object any) *transcode.Program {
	t.Helper()
	p, err := transcode.NewTypes().Program(object)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// message is implemented by generated types.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// compare compares the program's JSON for raw with the JSON of the decoded object. It returns false
// if the program returns false.
func compare(t testing.TB, p *transcode.Program, raw []byte, into message) (ok bool) {
	t.Helper()
	got, ok := p.Append(nil, raw, "")
	if !ok {
		return false
	}
	if err := into.Unmarshal(raw); err != nil {
		return true // the program does not look at all bytes, so it may succeed
	}
	into.(metav1.Object).SetResourceVersion("")
	want, err := json.Marshal(into)
	if err != nil || string(got) != string(want) {
		t.Fatalf("transcoded\n%s\nencoded\n%s\n%v", got, want, err)
	}
	return true
}

func TestPod(t *testing.T) {
	p := pod()
	raw, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	program := programOf(t, p)
	if !compare(t, program, raw, &corev1.Pod{}) {
		t.Fatal("refused")
	}
	for n := range raw { // a truncated message is malformed, or another object
		compare(t, program, raw[:n], &corev1.Pod{})
	}
}

// TestValues checks that values with special code have the same JSON as their types' methods make.
func TestValues(t *testing.T) {
	program := programOf(t, &corev1.Pod{})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]*`),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		moment := rapid.Map(rapid.Int64Range(-1e12, 1e12), func(s int64) metav1.Time { return metav1.Unix(s, 0) })
		p := pod()
		p.Labels = rapid.MapOf(text, text).Draw(t, "labels")
		p.CreationTimestamp = rapid.OneOf(moment, rapid.Just(metav1.Time{})).Draw(t, "created")
		p.DeletionTimestamp = rapid.OneOf(rapid.Ptr(moment, true), rapid.Just(&metav1.Time{})).Draw(t, "deleted")
		p.ManagedFields[0].FieldsV1.Raw = []byte(rapid.OneOf(fieldSets(3), text).Draw(t, "fields"))
		quantity := resource.NewQuantity(rapid.Int64().Draw(t, "number"), resource.BinarySI)
		p.Spec.Containers[0].Resources.Requests["x"] = *quantity
		p.Spec.Containers[0].ReadinessProbe.HTTPGet.Port = intstr.IntOrString{
			Type: intstr.Type(rapid.Int64Range(0, 1).Draw(t, "type")), IntVal: rapid.Int32().Draw(t, "int"),
			StrVal: text.Draw(t, "string")}
		raw, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		var back corev1.Pod
		if err := back.Unmarshal(raw); err != nil {
			t.Skip(err)
		}
		_, err = json.Marshal(&back)
		got, ok := program.Append(nil, raw, "")
		if ok != (err == nil) {
			t.Fatalf("transcoded: %t, %s; encoded: %v", ok, got, err)
		}
		if ok {
			want, _ := json.Marshal(&back)
			if string(got) != string(want) {
				t.Fatalf("transcoded\n%s\nencoded\n%s", got, want)
			}
		}
	})
}

// TestRepeats converts objects that have some equal parts, and checks that the JSON of one object
// never contains a part of another.
func TestRepeats(t *testing.T) {
	program := programOf(t, &corev1.Pod{})
	rapid.Check(t, func(t *rapid.T) {
		for range rapid.IntRange(1, 40).Draw(t, "pods") {
			p := pod()
			p.Name = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")
			for range rapid.IntRange(0, 12).Draw(t, "containers") {
				c := p.Spec.Containers[0]
				c.Name = rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "container")
				c.Args = rapid.SliceOfN(
					rapid.SampledFrom([]string{"--long-option-of-a-program=1", "--long-option-of-a-program=2"}), 0, 12).Draw(t, "args")
				p.Spec.Containers = append(p.Spec.Containers, c)
			}
			p.Annotations["a"] = rapid.SampledFrom([]string{"1", "2"}).Draw(t, "annotation")
			raw, err := p.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			revision := rapid.SampledFrom([]string{"7", "8"}).Draw(t, "revision")
			p.ResourceVersion = revision
			want, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := program.Append(nil, raw, revision); !ok || string(got) != string(want) {
				t.Fatalf("transcoded %v\n%s\nencoded\n%s", ok, got, want)
			}
		}
	})
}

// fieldSets generates values of FieldsV1. Some of them are not in the form that Kubernetes stores.
func fieldSets(depth int) *rapid.Generator[string] {
	if depth == 0 {
		return rapid.SampledFrom([]string{"{}", "{}", "{}", "{ }", "1", "[]", "{", ""})
	}
	return rapid.Custom(func(t *rapid.T) string {
		out := "{"
		for i := range rapid.IntRange(0, 3).Draw(t, "members") {
			if i > 0 {
				out += ","
			}
			key, _ := json.Marshal(rapid.OneOf(rapid.StringMatching(`f:[a-z]+`),
				rapid.StringMatching(`k:\{"[a-z<&]+"\}`), rapid.String()).Draw(t, "key"))
			out += string(key) + ":" + fieldSets(depth-1).Draw(t, "value")
		}
		return out + "}"
	})
}

// TestRefuses checks that the program rejects messages with layouts that encoders do not produce.
func TestRefuses(t *testing.T) {
	program := programOf(t, &corev1.ConfigMap{})
	a, b := "\x12\x06\x0a\x01a\x12\x01x", "\x12\x06\x0a\x01b\x12\x01x"
	for name, raw := range map[string]string{
		"a map out of order": b + a,
		"a key twice":        a + a,
		"no key":             "\x12\x03\x12\x01x",
		"metadata twice":     "\x0a\x03\x0a\x01n\x0a\x03\x0a\x01m",
		"a list torn apart":  "\x0a\x0b\x72\x01x\x0a\x01n\x72\x01y\x2a\x00",
		"another wire type":  "\x08\x01",
		"cut":                a[:4],
	} {
		if got, ok := program.Append([]byte("kept"), []byte(raw), ""); ok || string(got) != "kept" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got, ok := program.Append(nil, []byte(a+b+"\xfa\x07\x01z"), "7"); !ok ||
		string(got) != `{"metadata":{"resourceVersion":"7"},"data":{"a":"x","b":"x"}}` {
		t.Errorf("%t %s", ok, got)
	}
	if _, err := transcode.NewTypes().Program(&struct{ A float64 }{}); err == nil || errors.Unwrap(err) == nil {
		t.Error("a type without tags")
	}
}

// FuzzProgram compares the results of the program and of decoding on arbitrary bytes.
func FuzzProgram(f *testing.F) {
	raw, err := pod().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	program := programOf(f, &corev1.Pod{})
	f.Fuzz(func(t *testing.T, raw []byte) { compare(t, program, raw, &corev1.Pod{}) })
}

func BenchmarkPod(b *testing.B) {
	p := pod()
	raw, err := p.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	program := programOf(b, p)
	var out []byte
	b.Run("transcoded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			out, _ = program.Append(out[:0], raw, "123456")
		}
		b.SetBytes(int64(len(out)))
	})
	b.Run("decoded and encoded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var again corev1.Pod
			if err := again.Unmarshal(raw); err != nil {
				b.Fatal(err)
			}
			if out, err = json.Marshal(&again); err != nil {
				b.Fatal(err)
			}
		}
		b.SetBytes(int64(len(out)))
	})
}
