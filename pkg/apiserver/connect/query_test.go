// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecodeQuery(t *testing.T) {
	at := metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	ten, all := int64(10), "All"
	for _, tc := range []struct {
		query      string
		into, want any
	}{
		{
			"container=c&follow=true&tailLines=10&sinceTime=2030-01-02T03:04:05Z&stream=All&limitBytes=",
			&corev1.PodLogOptions{},
			&corev1.PodLogOptions{Container: "c", Follow: true, TailLines: &ten, SinceTime: &at, Stream: &all},
		},
		{
			"command=sh&command=-c&command=a,b&stdin&stdout=1&stderr=false&tty=0", &corev1.PodExecOptions{},
			&corev1.PodExecOptions{Command: []string{"sh", "-c", "a,b"}, Stdin: true, Stdout: true},
		},
		{"ports=80,443&ports=8080", &corev1.PodPortForwardOptions{},
			&corev1.PodPortForwardOptions{Ports: []int32{80, 443, 8080}}},
	} {
		q, err := url.ParseQuery(tc.query)
		if err != nil {
			t.Fatal(err)
		}
		if err := decodeQuery(q, tc.into); err != nil {
			t.Errorf("%s: %v", tc.query, err)
		}
		if d := cmp.Diff(tc.want, tc.into); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.query, d)
		}
	}
	for _, bad := range []string{"tailLines=x", "sinceTime=yesterday"} {
		q, _ := url.ParseQuery(bad)
		if decodeQuery(q, &corev1.PodLogOptions{}) == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}
