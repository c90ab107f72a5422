// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCheckpointName checks that the file name of a checkpoint is not too long, even for the
// longest names that the API accepts.
func TestCheckpointName(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.FixedZone("", 2*60*60))
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	if got, want := checkpointName(pod, "c", at), "checkpoint-p_ns-c-2030-01-02T03:04:05+02:00.tar"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	pod.Namespace, pod.Name = strings.Repeat("n", 63), strings.Repeat("p", 253)
	container := strings.Repeat("c", 63)
	got := checkpointName(pod, container, at)
	if !strings.HasPrefix(got, "checkpoint-ppp") ||
		!strings.HasSuffix(got, "_"+pod.Namespace+"-"+container+"-2030-01-02T03:04:05+02:00.tar") {
		t.Error(got)
	}
	if err := os.WriteFile(filepath.Join(t.TempDir(), got), nil, 0o600); err != nil {
		t.Error(err)
	}
}
