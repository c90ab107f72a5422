// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"maps"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
)

// TestGated checks that each gated field of specifications is cleared if its feature is off, unless the
// stored pod uses the feature.
func TestGated(t *testing.T) {
	volume := func(source string) string { return `{volumes: [{name: v, ` + source + `}]}` }
	for name, text := range map[string]string{
		"scheduling group":    `{schedulingGroup: {podGroupName: g}}`,
		"eviction responders": `{evictionResponders: [{name: example.com/a, priority: 1000}]}`,
		"owner of a certificate": volume(
			`projected: {sources: [{podCertificate: {signerName: example.com/s, keyType: ED25519, user: 1}}]}`),
		"owner of a secret":   volume(`secret: {secretName: s, defaultUser: 1}`),
		"owner of a key":      volume(`configMap: {name: m, items: [{key: k, path: p, user: 1}]}`),
		"owner of a file":     volume(`downwardAPI: {items: [{path: p, user: 1, fieldRef: {fieldPath: metadata.name}}]}`),
		"owner of a token":    volume(`projected: {sources: [{serviceAccountToken: {path: p, user: 1}}]}`),
		"owner of a bundle":   volume(`projected: {sources: [{clusterTrustBundle: {path: p, name: b, user: 1}}]}`),
		"owner of projected":  volume(`projected: {defaultUser: 1}`),
		"mode of a directory": volume(`emptyDir: {mode: 448}`),
		"stop signal":         container(`lifecycle: {stopSignal: SIGINT}`),
		"mount options":       container(`volumeMounts: [{name: v, mountPath: /v, bindMountOptions: [noexec]}]`),
		"protocol of a probe": container(`livenessProbe: {httpGet: {port: 1, protocol: HTTP2}}`),
		"protocol of a hook":  container(`lifecycle: {preStop: {httpGet: {port: 1, protocol: HTTP2}}}`),
		"mode of gRPC":        container(`readinessProbe: {grpc: {port: 1, mode: TLS}}`),
	} {
		t.Run(name, func(t *testing.T) {
			read := func() *corev1.Pod {
				pod := &corev1.Pod{}
				if err := yaml.UnmarshalStrict([]byte(text), &pod.Spec); err != nil {
					t.Fatal(err)
				}
				return pod
			}
			row := resource.Of[corev1.PodList](resource.Kind[*corev1.Pod]{Gated: podspec.Gated[*corev1.Pod]()})
			resource.DropGated(row, func(string) bool { return false })
			created, kept, dropped := read(), read(), read()
			row.PrepareCreate(t.Context(), created)
			row.PrepareUpdate(t.Context(), kept, read())
			row.PrepareUpdate(t.Context(), dropped, &corev1.Pod{})
			if !reflect.DeepEqual(kept, read()) {
				t.Errorf("a field that was used is cleared: %+v", kept)
			}
			if reflect.DeepEqual(dropped, read()) || reflect.DeepEqual(created, read()) {
				t.Error("the field is not cleared")
			}
		})
	}
}

// TestDropInitAnnotations checks that the old annotations about init containers are removed, and
// that the map of another object does not change.
func TestDropInitAnnotations(t *testing.T) {
	shared := map[string]string{"a": "b", "pod.alpha.kubernetes.io/init-container-statuses": "[]",
		"pod.beta.kubernetes.io/init-containers": "[]"}
	template := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: shared}}
	podspec.DropInitAnnotations(&template.ObjectMeta)
	if want := map[string]string{"a": "b"}; !maps.Equal(template.Annotations, want) || len(shared) != 3 {
		t.Errorf("annotations %v of the template and %v of the other object", template.Annotations, shared)
	}
}
