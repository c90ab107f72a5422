// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cell measures the memory of a control plane of a large cluster. It creates Nodes, and
// pods that are bound to them, waits a minute, so that the processes become idle, and prints the
// memory of the processes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// writers is how many requests are sent at the same time. settled is how long the command waits
// before it reads the memory of the processes.
const (
	writers = 16
	settled = time.Minute
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "cell:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	nodes := flag.Int("nodes", 5000, "number of nodes")
	pods := flag.Int("pods", 50000, "number of pods, spread evenly over the nodes")
	flag.Parse()
	rc, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	rc.QPS, rc.ContentType = -1, "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	err = each(ctx, *nodes, func(ctx context.Context, i int) error {
		_, err := client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("create nodes: %w", err)
	}
	err = each(ctx, *pods, func(ctx context.Context, i int) error {
		_, err := client.CoreV1().Pods("default").Create(ctx, pod(i, *nodes), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("create pods: %w", err)
	}
	time.Sleep(settled)
	return printMemory()
}

// each calls f with the numbers 0 to n-1, with several calls at the same time.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range writers {
		g.Go(func() error {
			for i := int(next.Add(1) - 1); i < n; i = int(next.Add(1) - 1) {
				if err := f(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// node returns node number i, with four labels and twenty images.
func node(i int) *v1.Node {
	name := fmt.Sprint("node-", i)
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1.LabelHostname: name, v1.LabelTopologyZone: fmt.Sprint("zone-",
			i%3), v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64",
	}}}
	n.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("32"), v1.ResourceMemory: resource.MustParse("256Gi"),
		v1.ResourcePods: resource.MustParse("110"),
	}
	n.Status.Capacity = n.Status.Allocatable
	for image := range 20 {
		n.Status.Images = append(n.Status.Images, v1.ContainerImage{
			Names: []string{fmt.Sprintf("registry.example.com/production/app-%d:2.14.3",
				(i+image)%200)}, SizeBytes: 100 << 20,
		})
	}
	return n
}

// pod returns pod number i, which is bound to one of the nodes. It has two containers and six labels.
// Fifty pods have the same labels, as if they belonged to the same controller.
func pod(i, nodes int) *v1.Pod {
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse("80m"),
		v1.ResourceMemory: resource.MustParse("128Mi")}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-7d4b9c6f5d-%05d", i), Labels: map[string]string{
			"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": fmt.Sprint("web-", i/50),
			"app.kubernetes.io/version": "2.14.3", "app.kubernetes.io/component": "frontend",
			"app.kubernetes.io/managed-by": "Helm", "pod-template-hash": "7d4b9c6f5d",
		}},
		Spec: v1.PodSpec{NodeName: fmt.Sprint("node-", i%nodes)},
	}
	for _, name := range []string{"web", "metrics"} {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: name, Image: "registry.example.com/production/" + name + ":2.14.3", Args: []string{"--listen=:8080"},
			Env:       []v1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "REGION", Value: "north"}},
			Resources: v1.ResourceRequirements{Requests: requests, Limits: requests},
		})
	}
	return p
}

// printMemory prints the memory of the processes in the environment variable PIDS, which has the
// form NAME=PID,...
func printMemory() error {
	for pair := range strings.SplitSeq(os.Getenv("PIDS"), ",") {
		name, pid, _ := strings.Cut(pair, "=")
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "Rss") || strings.HasPrefix(line, "VmHWM") {
				fmt.Print(name, " ", line)
			}
		}
	}
	return nil
}
