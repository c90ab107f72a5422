// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestImagePolicyWebhook checks that the answer of a webhook decides about the images of pods, and
// that answers are cached. If the webhook does not answer, defaultAllow decides.
func TestImagePolicyWebhook(t *testing.T) {
	asked := make(chan imagepolicyv1alpha1.ImageReviewSpec, 100)
	backend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review imagepolicyv1alpha1.ImageReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked <- review.Spec
		switch image := review.Spec.Containers[0].Image; image {
		case "broken":
			http.Error(w, "broken", http.StatusForbidden)
			return
		case "bad":
			review.Status.Reason = "too old"
		case "ugly":
		default:
			review.Status.Allowed = true
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(&review); err != nil {
			t.Error(err)
		}
	}))
	defer backend.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: backend.Certificate().Raw})
	kubeconfig, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": []any{map[string]any{"name": "c",
			"cluster": map[string]any{"server": backend.URL, "certificate-authority-data": authority}}},
		"contexts": []any{map[string]any{"name": "x", "context": map[string]any{"cluster": "c"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprint("defaultAllow ", open), func(t *testing.T) {
			settings := fmt.Sprintf("- {name: ImagePolicyWebhook, configuration: {imagePolicy: "+
				"{kubeConfigFile: %q, retryBackoff: 1, defaultAllow: %v}}}\n", file, open)
			s := optionalServer(t, settings, "ImagePolicyWebhook")
			unheard := ""
			if !open {
				unheard = "broken" // the text of the webhook's error answer, to which the plugin adds no prefix
			}
			for image, want := range map[string]string{
				"good": "", "broken": unheard,
				"bad":  `pods "bad" is forbidden: image policy webhook backend denied one or more images: too old`,
				"ugly": `pods "ugly" is forbidden: one or more images rejected by webhook backend`,
			} {
				_, err := create(t, s, "default", nil, pod(image, func(p *corev1.Pod) { p.Spec.Containers[0].Image = image }))
				refused(t, err, want)
			}
			for len(asked) > 0 {
				<-asked
			}
			noted := func(p *corev1.Pod) {
				p.Annotations = map[string]string{"x.image-policy.k8s.io/ticket": "1", "other": "2"}
				p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "j"}}
			}
			for range 2 {
				_, err := s.Client.CoreV1().Pods("default").Create(t.Context(), pod("noted", noted),
					metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				refused(t, err, "")
			}
			want := imagepolicyv1alpha1.ImageReviewSpec{
				Containers:  []imagepolicyv1alpha1.ImageReviewContainerSpec{{Image: "i"}, {Image: "j"}},
				Annotations: map[string]string{"x.image-policy.k8s.io/ticket": "1"}, Namespace: "default",
			}
			if diff := cmp.Diff(want, <-asked); diff != "" || len(asked) > 0 {
				t.Errorf("asked %d times more, and %s", len(asked), diff)
			}
		})
	}
}
