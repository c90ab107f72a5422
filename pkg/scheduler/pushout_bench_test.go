// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// BenchmarkPushOut creates 1,000 pods on 1,000 full nodes. Each pod evicts another pod. It measures
// the time from the first creation until the watch shows all pods bound. The API server, the
// scheduler and the client run in one process; the metric cpu-ms/pod is the CPU time of that
// process per pod.
func BenchmarkPushOut(b *testing.B) {
	const nodes = 1000
	spent := time.Duration(0)
	for b.Loop() {
		b.StopTimer()
		server := testserver.Start(b, testserver.Options{Etcd: embedded.Start})
		config := *server.Config
		config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf",
			"application/vnd.kubernetes.protobuf,application/json"
		c, err := kubernetes.NewForConfig(&config)
		if err != nil {
			b.Fatal(err)
		}
		fullCell(b, c, nodes)
		follow(b, c)
		w, err := c.CoreV1().Pods("default").Watch(b.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName!="})
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		before := cpuTime(b)
		allBound := make(chan struct{})
		go func() {
			defer close(allBound)
			seen := map[string]bool{}
			for e := range w.ResultChan() {
				if p, ok := e.Object.(*v1.Pod); ok && p.Spec.PriorityClassName == "high" {
					if seen[p.Name] = true; len(seen) == nodes {
						return
					}
				}
			}
		}()
		createAll(b, nodes, func(i int) error { return pushPod(b, c, "high", "", i) })
		<-allBound
		spent += cpuTime(b) - before
		w.Stop()
		b.StopTimer()
		server.Stop(b)
		b.StartTimer()
	}
	b.ReportMetric(spent.Seconds()*1000/nodes/float64(b.N), "cpu-ms/pod")
	b.ReportMetric(nodes*float64(b.N)/b.Elapsed().Seconds(), "pods/s")
}

// fullCell creates nodes with four pods each, so that a fifth pod does not fit.
func fullCell(b *testing.B, c kubernetes.Interface, nodes int) {
	b.Helper()
	addAccount(b, c)
	for name, value := range map[string]int32{"low": 10, "high": 1000} {
		if _, err := c.SchedulingV1().PriorityClasses().Create(b.Context(),
			&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value},
			metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	createAll(b, nodes, func(i int) error {
		n, err := c.CoreV1().Nodes().Create(b.Context(),
			&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		n.Spec.Taints = nil
		if n, err = c.CoreV1().Nodes().Update(b.Context(), n, metav1.UpdateOptions{}); err != nil {
			return err
		}
		n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("32"),
			v1.ResourceMemory: resource.MustParse("256Gi"), v1.ResourcePods: resource.MustParse("110")}
		n.Status.Capacity = n.Status.Allocatable
		_, err = c.CoreV1().Nodes().UpdateStatus(b.Context(), n, metav1.UpdateOptions{})
		return err
	})
	createAll(b, 4*nodes, func(i int) error { return pushPod(b, c, "low", fmt.Sprint("n", i%nodes), i) })
}

// pushPod creates a pod that requests a quarter of a node.
func pushPod(b *testing.B, c kubernetes.Interface, class, node string, i int) error {
	p := pod(fmt.Sprint(class, i), func(p *v1.Pod) {
		p.Spec.PriorityClassName, p.Spec.NodeName, p.Spec.TerminationGracePeriodSeconds = class, node, new(int64)
		p.Labels = map[string]string{
			"app": "web", "app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-production",
			"app.kubernetes.io/version":   "2.14.3",
			"app.kubernetes.io/component": "frontend", "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": "7d4b9c6f5d",
		}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet",
			Name: "web-7d4b9c6f5d", UID: "0b9e1c5e-8f5c-4a53-9a4e-3f9f5d1c7a11", Controller: new(true)}}
		c := &p.Spec.Containers[0]
		c.Args = []string{"--listen=:8080", "--log-level=info", "--config=/etc/web/config.yaml"}
		c.Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "admin", ContainerPort: 8081}}
		c.Env = []v1.EnvVar{{Name: "ENVIRONMENT", Value: "production"},
			{Name: "CACHE_ADDRESS", Value: "redis.cache.svc.cluster.local:6379"}}
		c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("7800m"),
			v1.ResourceMemory: resource.MustParse("1Gi")}
	})
	_, err := c.CoreV1().Pods("default").Create(b.Context(), p, metav1.CreateOptions{})
	return err
}

// cpuTime returns the CPU time that the process has used so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
