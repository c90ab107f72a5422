// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// writer creates ConfigMaps one after the other, and records which of them the API server
// acknowledged.
type writer struct {
	namespace string
	cancel    context.CancelFunc
	done      sync.WaitGroup
	acked     []string
}

func startWriter(t *testing.T, ns string) *writer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &writer{namespace: ns, cancel: cancel}
	w.done.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("written-%d", i)
			_, err := shared.client.CoreV1().ConfigMaps(ns).Create(ctx,
				&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name,
					Labels: map[string]string{"written": "yes"}}}, metav1.CreateOptions{})
			if err == nil {
				w.acked = append(w.acked, name)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return w
}

// check fails the test if an acknowledged ConfigMap is missing.
func (w *writer) check(t *testing.T) {
	t.Helper()
	w.cancel()
	w.done.Wait()
	list, err := shared.client.CoreV1().ConfigMaps(w.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, cm := range list.Items {
		there[cm.Name] = true
	}
	for _, name := range w.acked {
		if !there[name] {
			t.Errorf("%s was acknowledged and is gone", name)
		}
	}
	t.Logf("%d acknowledged writes are there", len(w.acked))
}

// runs returns the container IDs and restart counts in a namespace, by pod.
func runs(t *testing.T, ns string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, p := range pods(t, ns, "") {
		for _, c := range p.Status.ContainerStatuses {
			out[p.Name+"/"+c.Name] = fmt.Sprint(c.ContainerID, " ", c.RestartCount)
		}
	}
	return out
}

// TestKilledProcesses kills every process of the cluster, one after the other, and checks that the
// cluster recovers each time without a loss of data.
func TestKilledProcesses(t *testing.T) {
	ns := namespace(t, "faults")
	if out, err := try(t, webManifest, "-n", ns, "create", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctl(t, "-n", ns, "expose", "deployment", "nginx-deployment", "--port=80")
	eventually(t, "2 pods ready", func() bool { return readyPods(t, ns, "app=nginx") == 2 })
	l := startLoop(t, ns)
	l.check(t, "before anything is killed")
	before, system := runs(t, ns), runs(t, "kube-system")
	names := slices.Sorted(maps.Keys(pids(t)))
	if len(names) != 3+3*nodes {
		t.Fatalf("processes: %v", names)
	}
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			w := startWriter(t, ns)
			killAndAwait(t, name)
			awaitNodes(t, nodes)
			w.check(t)
			ctl(t, "-n", ns, "delete", "configmaps", "-l", "written=yes")
			// The cluster must still be able to run new pods.
			asked := fmt.Sprintf("check-%d", i)
			ctl(t, "-n", ns, "create", "deployment", asked, "--image=busybox:1.36", "--replicas=2", "--", "sleep", "1000")
			ctl(t, "-n", ns, "rollout", "status", "deployment", asked)
			ctl(t, "-n", ns, "delete", "deployment", asked, "--grace-period=1")
			l.check(t, "kill of "+name)
		})
	}
	for _, c := range []struct {
		ns     string
		before map[string]string
	}{{ns, before}, {"kube-system", system}} {
		after := runs(t, c.ns)
		for container, run := range c.before {
			if after[container] != run {
				t.Errorf("container %s of %s: %s before, %s after", container, c.ns, run, after[container])
			}
		}
	}
	ctl(t, "delete", "namespace", ns)
}

// killAndAwait kills a process and waits until it has been started again.
func killAndAwait(t *testing.T, name string) {
	t.Helper()
	pid := pids(t)[name]
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %s (%d): %v", name, pid, err)
	}
	eventually(t, name+" runs again", func() bool {
		now := pids(t)[name]
		return now != 0 && now != pid
	})
}

// awaitNodes waits until the API server responds and reports n ready nodes.
func awaitNodes(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d nodes ready", n), func() bool { return readyNodes(t) == n })
}

func readyNodes(t *testing.T) int {
	list, err := shared.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return -1
	}
	n := 0
	for _, node := range list.Items {
		for _, c := range node.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
				n++
			}
		}
	}
	return n
}

// impatient returns webManifest with tolerations that let pods be evicted soon from an unreachable
// node.
func impatient() string {
	return strings.Replace(webManifest, "    spec:\n      containers:", `    spec:
      tolerations:
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 2}
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 2}
      containers:`, 1)
}

// TestKilledNode kills all processes of a node, waits until its pods are replaced, and starts the
// node again.
func TestKilledNode(t *testing.T) {
	ns := namespace(t, "node")
	if out, err := try(t, impatient(), "-n", ns, "create", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "2 pods ready", func() bool { return readyPods(t, ns, "app=nginx") == 2 })
	ctl(t, "cluster", "node", "kill", "n2", "--name", clusterName)
	eventually(t, "n2 is not ready", func() bool { return readyNodes(t) == nodes-1 })
	eventually(t, "both pods are ready on n1", func() bool {
		on := 0
		for _, p := range pods(t, ns, "app=nginx") {
			if ready(&p) && p.Spec.NodeName == "n1" {
				on++
			}
		}
		return on == 2
	})
	ctl(t, "cluster", "node", "start", "n2", "--name", clusterName)
	awaitNodes(t, nodes)
	// Old pods on the node must be removed, and the node must run new pods again.
	eventually(t, "no pod is left over", func() bool { return len(pods(t, ns, "app=nginx")) == 2 })
	ctl(t, "-n", ns, "scale", "deployment", "nginx-deployment", "--replicas=6")
	ctl(t, "-n", ns, "rollout", "status", "deployment", "nginx-deployment")
	used := slices.ContainsFunc(pods(t, ns, "app=nginx"),
		func(p v1.Pod) bool { return p.Spec.NodeName == "n2" && ready(&p) })
	if !used {
		t.Error("no new pod runs on n2")
	}
	ctl(t, "delete", "namespace", ns)
}
