// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package pods_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// BenchmarkPreemption measures the steps of a scheduler that preempts pods, in batches: creating
// pods, reporting each as unschedulable with one victim, and binding it. Two clients watch pods
// meanwhile. It reports, per pod and step, the CPU time of the process, which includes the clients.
func BenchmarkPreemption(b *testing.B) {
	const batch = v1alpha1.MaxVerdicts
	c := testserver.Start(b, testserver.Options{Etcd: embedded.Start}).Client
	if _, err := c.CoreV1().ServiceAccounts("default").Create(b.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	drain(b, c, "application/vnd.kubernetes.protobuf", "")
	drain(b, c, "application/json", "spec.nodeName!=")
	spent := map[string]time.Duration{}
	step := func(name string, do func()) {
		before := cpuTime(b)
		do()
		spent[name] += cpuTime(b) - before
	}
	rounds := 0
	for b.Loop() {
		var low, high []v1alpha1.PodRef
		step("fill", func() { low = createAll(b, c, fmt.Sprint("low-", rounds), "n", batch) })
		step("create", func() { high = createAll(b, c, fmt.Sprint("high-", rounds), "", batch) })
		verdicts := v1alpha1.VerdictBatch{ReportingController: "default-scheduler", ReportingInstance: "bench"}
		bindings := v1alpha1.BindingBatch{ReportingController: "default-scheduler", ReportingInstance: "bench"}
		for i, p := range high {
			node := "n" + strconv.Itoa(i)
			verdicts.Verdicts = append(verdicts.Verdicts, v1alpha1.Verdict{
				PodRef: p, Reason: corev1.PodReasonUnschedulable, Message: "0/1000 nodes are available: 1000 Insufficient cpu.",
				Generation: 1, NominatedNode: node, Event: true, Victims: low[i : i+1],
			})
			bindings.Bindings = append(bindings.Bindings, v1alpha1.Binding{Namespace: p.Namespace, Name: p.Name,
				UID: p.UID, Node: node})
		}
		step("verdict", func() { post(b, c, v1alpha1.VerdictPath, verdicts) })
		step("binding", func() { post(b, c, v1alpha1.BatchPath, bindings) })
		rounds++
	}
	for name, d := range spent {
		b.ReportMetric(d.Seconds()*1e6/float64(rounds*batch), "µs/"+name)
	}
}

// drain watches pods and discards the events.
func drain(b *testing.B, c kubernetes.Interface, accept, fields string) {
	b.Helper()
	body, err := c.CoreV1().RESTClient().Get().AbsPath("/api/v1/pods").Param("watch",
		"true").Param("fieldSelector", fields).
		SetHeader("Accept", accept).Stream(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = body.Close() })
	go func() { _, _ = io.Copy(io.Discard, body) }()
}

func createAll(b *testing.B, c kubernetes.Interface, prefix, node string, n int) []v1alpha1.PodRef {
	b.Helper()
	out := make([]v1alpha1.PodRef, n)
	for i := range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: prefix + "-" + strconv.Itoa(i),
				Labels: map[string]string{
					"app": "web", "app.kubernetes.io/name": "web",
					"app.kubernetes.io/instance": "web-production", "app.kubernetes.io/version": "2.14.3",
					"app.kubernetes.io/component": "frontend", "app.kubernetes.io/managed-by": "Helm",
					"pod-template-hash": "7d4b9c6f5d",
				},
			},
			Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: new(int64(0)),
				Containers: []corev1.Container{{
					Name: "web", Image: "registry.example.com/production/web:2.14.3",
					Args:  []string{"--listen=:8080", "--log-level=info"},
					Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "admin", ContainerPort: 8081}},
					Env: []corev1.EnvVar{{Name: "ENVIRONMENT", Value: "production"},
						{Name: "CACHE_ADDRESS", Value: "redis.cache.svc.cluster.local:6379"}},
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceCPU: apiresource.MustParse("7800m"), corev1.ResourceMemory: apiresource.MustParse("1Gi")}},
				}},
			},
		}
		if node != "" {
			pod.Spec.NodeName = node + strconv.Itoa(i)
		}
		made, err := c.CoreV1().Pods("default").Create(b.Context(), pod, metav1.CreateOptions{})
		if err != nil {
			b.Fatal(err)
		}
		out[i] = v1alpha1.PodRef{Namespace: "default", Name: made.Name, UID: made.UID}
	}
	return out
}

func post(b *testing.B, c kubernetes.Interface, path string, batch any) {
	b.Helper()
	body, err := json.Marshal(batch)
	if err != nil {
		b.Fatal(err)
	}
	raw, err := c.CoreV1().RESTClient().Post().AbsPath(path).SetHeader("Content-Type",
		"application/json").Body(body).DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var answer struct {
		Results []v1alpha1.VerdictResult `json:"results"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		b.Fatal(err)
	}
	for _, r := range answer.Results {
		for _, r := range append(r.Victims, r.Result) {
			if r.Code >= 300 {
				b.Fatalf("refused: %+v", r)
			}
		}
	}
}

// cpuTime returns the CPU time of the process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
