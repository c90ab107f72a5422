// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/scheduler/intake"
	"keelson.dev/keelson/pkg/scheduler/profile"
)

// runningPod returns pod number i. Each controller has fifty pods. The status is complete, as a
// kubelet reports it.
func runningPod(i int) *v1.Pod {
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse("80m"), v1.ResourceMemory: resource.MustParse("128Mi")}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("web-7d4b9c6f5d-%05d", i), Namespace: fmt.Sprint("team-", i/50%40),
		UID:             types.UID(fmt.Sprintf("0b9e1c5e-8f5c-4a53-9a4e-%012d", i)),
		ResourceVersion: fmt.Sprint(1000 + i), GenerateName: "web-7d4b9c6f5d-",
		Labels: map[string]string{
			"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": fmt.Sprint("web-", i/50),
			"app.kubernetes.io/version":   "2.14.3",
			"app.kubernetes.io/component": "frontend", "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": "7d4b9c6f5d",
		},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet",
			Name: "web-7d4b9c6f5d", UID: types.UID(fmt.Sprint("owner-", i/50)), Controller: new(bool)}},
	}}
	p.Spec.NodeName, p.Spec.ServiceAccountName, p.Spec.SchedulerName = fmt.Sprint("node-", i%5000), "default",
		v1.DefaultSchedulerName
	p.Status = v1.PodStatus{Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable,
		PodIP: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), HostIP: "192.0.2.1", StartTime: &metav1.Time{}}
	for _, name := range []string{"web", "metrics"} {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: name, Image: "registry.example.com/production/" + name + ":2.14.3", ImagePullPolicy: v1.PullIfNotPresent,
			Args: []string{"--listen=:8080"}, Resources: v1.ResourceRequirements{Requests: requests, Limits: requests},
			VolumeMounts: []v1.VolumeMount{{Name: "token", MountPath: "/var/run/secrets"}},
		})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{
			Name: name, Ready: true, AllocatedResources: requests,
			Resources: &v1.ResourceRequirements{Requests: requests, Limits: requests},
		})
	}
	p.Spec.Volumes = []v1.Volume{{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}}}
	p.Spec.Tolerations = []v1.Toleration{
		{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute,
			TolerationSeconds: new(int64)},
		{Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute,
			TolerationSeconds: new(int64)},
	}
	for _, c := range []v1.PodConditionType{v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady,
		v1.ContainersReady, v1.PodScheduled} {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: c, Status: v1.ConditionTrue})
	}
	return p
}

// message returns an encoded object as the API server sends it.
func message(tb testing.TB, o interface{ Marshal() ([]byte, error) }) []byte {
	tb.Helper()
	enc, err := o.Marshal()
	if err != nil {
		tb.Fatal(err)
	}
	return enc
}

// BenchmarkMemory measures the scheduler's memory for a cluster: nodes and pods in the caches, and
// the state that the scheduler computes from them.
func BenchmarkMemory(b *testing.B) {
	const nodes, pods = 5000, 50000
	for b.Loop() {
		before := heap()
		m, err := NewModel(&profile.Profile{}, rand.New(rand.NewPCG(1, 2)))
		if err != nil {
			b.Fatal(err)
		}
		read, err := intake.NewReader()
		if err != nil {
			b.Fatal(err)
		}
		kept := cache.NewStore(cache.MetaNamespaceKeyFunc)
		add := func(obj any) {
			if err := kept.Add(obj); err != nil {
				b.Fatal(err)
			}
		}
		for i := range nodes {
			n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), Labels: map[string]string{
				v1.LabelHostname: fmt.Sprint("node-", i), v1.LabelTopologyZone: fmt.Sprint("zone-", i%3),
				v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64",
			}}}
			n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("32"),
				v1.ResourceMemory: resource.MustParse("256Gi"), v1.ResourcePods: resource.MustParse("110")}
			obj := &v1.Node{}
			if err := obj.Unmarshal(message(b, n)); err != nil {
				b.Fatal(err)
			}
			if _, err := slim(obj); err != nil {
				b.Fatal(err)
			}
			add(obj)
			m.view.SetNode(obj)
		}
		withNodes := heap()
		for i := range pods {
			obj, err := read.Pod(message(b, runningPod(i)))
			if err != nil {
				b.Fatal(err)
			}
			add(obj)
			m.view.SetPod(obj)
		}
		after := heap()
		b.ReportMetric(float64(withNodes-before)/nodes, "B/node")
		b.ReportMetric(float64(after-withNodes)/pods, "B/pod")
		b.ReportMetric(float64(after-before)/(1<<20), "MiB")
		runtime.KeepAlive(m)
		runtime.KeepAlive(kept)
		runtime.KeepAlive(read)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
