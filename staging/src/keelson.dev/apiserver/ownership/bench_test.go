// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// webPod is a typical pod of a Deployment of a web service.
const webPod = `{
"apiVersion":"v1","kind":"Pod",
"metadata":{"name":"web-1","namespace":"default",
 "labels":{"app":"web","app.kubernetes.io/name":"web","app.kubernetes.io/version":"2.14.3","pod-template-hash":"7d4b9c6f5d","generation":"0"},
 "annotations":{"prometheus.io/scrape":"true","prometheus.io/port":"9102","checksum/config":"5f9c4ab08cac7457e9111a30e4664920607ea2c1"},
 "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"0b9e1c5e-8f5c-4a53-9a4e-3f9f5d1c7a11","controller":true}]},
"spec":{"terminationGracePeriodSeconds":30,"securityContext":{"runAsNonRoot":true,"runAsUser":1000},
 "containers":[
  {"name":"web","image":"registry.example.com/web:2.14.3","args":["--listen=:8080","--log-level=info"],
   "ports":[{"name":"http","containerPort":8080,"protocol":"TCP"},{"name":"admin","containerPort":8081,"protocol":"TCP"}],
   "env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}},{"name":"ENVIRONMENT","value":"production"},
    {"name":"DATABASE_USER","valueFrom":{"secretKeyRef":{"name":"db","key":"username"}}}],
   "resources":{"requests":{"cpu":"80m","memory":"128Mi"},"limits":{"cpu":"500m","memory":"256Mi"}},
   "volumeMounts":[{"name":"config","mountPath":"/etc/web","readOnly":true},{"name":"tmp","mountPath":"/tmp"}],
   "livenessProbe":{"httpGet":{"path":"/healthz","port":8081,"scheme":"HTTP"},"initialDelaySeconds":5,"periodSeconds":10},
   "readinessProbe":{"httpGet":{"path":"/readyz","port":8081,"scheme":"HTTP"},"initialDelaySeconds":5,"periodSeconds":10}},
  {"name":"metrics","image":"registry.example.com/exporter:1.0.0","ports":[{"name":"metrics","containerPort":9102,"protocol":"TCP"}],
   "resources":{"requests":{"cpu":"20m","memory":"32Mi"}}}],
 "volumes":[{"name":"config","configMap":{"name":"web"}},{"name":"tmp","emptyDir":{}}],
 "tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]}}`

func parsePod(t testing.TB) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := json.Unmarshal([]byte(webPod), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// BenchmarkUpdate changes one label of a pod that another manager created.
func BenchmarkUpdate(b *testing.B) {
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	w := newWorld(b, NewTypes(), testConverter(), gvk)
	live := w.update(b, "", "maker", newObject(b, gvk), parsePod(b)).(*corev1.Pod)
	live.UID = "u"
	next := live.DeepCopy()
	next.Labels["generation"] = "1"
	said, now := next.ManagedFields, metav1.Now()
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			next.ManagedFields = said
			if !w.keepers[""].Update(live, next, "other", now) {
				b.Fatal("gave up")
			}
		}
	})
	b.Run("model", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			next.ManagedFields = said
			w.models[""].UpdateNoErrors(live, next, "other")
		}
	})
}

// BenchmarkCreate computes the managedFields of a new pod.
func BenchmarkCreate(b *testing.B) {
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	w := newWorld(b, NewTypes(), testConverter(), gvk)
	pod, none, now := parsePod(b), newObject(b, gvk), metav1.Now()
	none.GetObjectKind().SetGroupVersionKind(gvk)
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			pod.ManagedFields = nil
			if !w.keepers[""].Update(none, pod, "maker", now) {
				b.Fatal("gave up")
			}
		}
	})
	b.Run("model", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			pod.ManagedFields = nil
			w.models[""].UpdateNoErrors(none, pod, "maker")
		}
	})
}
