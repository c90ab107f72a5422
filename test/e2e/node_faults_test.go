// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// faulty is the node on which the tests cause faults.
const faulty = "n2"

// onNode returns the manifest of a pod on the given node. Its container runs script. Its termination
// grace period is one second. The argument more has further lines of its spec.
func onNode(name, node, script, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - name: c
    image: busybox:1.36
    command: [sh, -c, %q]
    volumeMounts: [{name: data, mountPath: /data}]
%s`, name, node, script, more)
}

func create(t *testing.T, ns, manifest string) {
	t.Helper()
	if out, err := try(t, manifest, "-n", ns, "create", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// condition returns the condition of the given type from a node's status.
func condition(t *testing.T, node string, kind v1.NodeConditionType) v1.NodeCondition {
	n, err := shared.client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		return v1.NodeCondition{}
	}
	i := slices.IndexFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return v1.NodeCondition{}
	}
	return n.Status.Conditions[i]
}

// podNamed returns a pod, or an empty Pod if it does not exist.
func podNamed(t *testing.T, ns, name string) *v1.Pod {
	p, err := shared.client.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return &v1.Pod{}
	}
	return p
}

// unchanged checks that the containers that ran before are still running and have not been
// restarted.
func unchanged(t *testing.T, ns string, before map[string]string) {
	t.Helper()
	now := runs(t, ns)
	for name, run := range before {
		if now[name] != run {
			t.Errorf("%s: %s before, %s after", name, run, now[name])
		}
	}
}

// elapsed returns a function that reports whether d has passed since the call of elapsed.
func elapsed(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().After(end) }
}

// TestHungRuntime stops containerd with SIGSTOP, so that its socket accepts connections but no call
// returns. It checks that the cluster recovers once containerd continues.
func TestHungRuntime(t *testing.T) {
	ns := namespace(t, "hung")
	create(t, ns, onNode("steady", faulty, "while :; do date +%s >/data/at; sleep 1; done", ""))
	eventually(t, "the pod is ready", func() bool { p := podNamed(t, ns, "steady"); return ready(p) })
	before := runs(t, ns)
	pid := pids(t)["containerd-"+faulty]
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	eventually(t, "the node says that its runtime does not answer", func() bool {
		c := condition(t, faulty, v1.NodeReady)
		return c.Status == v1.ConditionFalse && strings.Contains(c.Message, "container runtime")
	})
	file := "/var/lib/kubelet/pods/" + string(podNamed(t, ns, "steady").UID) + "/volumes/kubernetes.io~empty-dir/data/at"
	at := func() string { return ctl(t, "cluster", "exec", "--name", clusterName, faulty, "--", "cat", file) }
	was := at()
	eventually(t, "the container goes on", func() bool { return at() != was })
	// A pod that is created now must wait, and start after containerd continues.
	create(t, ns, onNode("later", faulty, "sleep 1000", "  tolerations: [{operator: Exists}]\n"))
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	awaitNodes(t, nodes)
	eventually(t, "the pod created meanwhile is ready", func() bool { p := podNamed(t, ns, "later"); return ready(p) })
	if now := pids(t)["containerd-"+faulty]; now != pid {
		t.Errorf("containerd was %d and is %d", pid, now)
	}
	unchanged(t, ns, before)
	ctl(t, "delete", "namespace", ns)
}

// TestSilentControlPlane stops all processes of the control plane for longer than the duration of a
// node's Lease, and kills a kubelet meanwhile. Running pods must not be affected. The processes are
// stopped for one minute: a Lease lasts 40 s, and the kubelet's periodic work is done every 10 s.
func TestSilentControlPlane(t *testing.T) {
	ns := namespace(t, "silent")
	const sick = `    livenessProbe: {exec: {command: [test, -f, /tmp/well]}, periodSeconds: 1, timeoutSeconds: 30}
`
	create(t, ns, onNode("steady", faulty, "while :; do date +%s >/data/at; sleep 1; done", ""))
	create(t, ns, onNode("steady-1", "n1", "sleep 10000", ""))
	create(t, ns, onNode("sick", "n1",
		"touch /tmp/well; until [ -f /data/go ]; do sleep 1; done; rm /tmp/well; rm /data/go; sleep 1000", sick))
	eventually(t, "the pods are ready", func() bool { return readyPods(t, ns, "") == 3 })
	before := runs(t, ns)
	delete(before, "sick/c")
	file := "/var/lib/kubelet/pods/" + string(podNamed(t, ns, "sick").UID) + "/volumes/kubernetes.io~empty-dir/data/go"
	id := strings.TrimPrefix(podNamed(t, ns, "sick").Status.ContainerStatuses[0].ContainerID, "containerd://")
	on := func(node string, command ...string) (string, error) {
		return try(t, "", append([]string{"cluster", "exec", "--name", clusterName, node, "--"}, command...)...)
	}
	all := pids(t)
	held := []int{all["apiserver"], all["controller-manager"], all["scheduler"]}
	hold := func(s syscall.Signal) {
		for _, pid := range held {
			_ = syscall.Kill(pid, s)
		}
	}
	hold(syscall.SIGSTOP)
	t.Cleanup(func() { hold(syscall.SIGCONT) })
	// Probes must still work: the kubelet must restart a container whose probe fails, without the
	// control plane.
	if out, err := on("n1", "touch", file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "the sick container is another one", func() bool {
		out, err := on("n1", "sh", "-c", "ls /run/containerd/io.containerd.runtime.v2.task/k8s.io")
		return err == nil && !strings.Contains(out, id)
	})
	if err := syscall.Kill(all["kubelet-"+faulty], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// A node's Lease lasts 40 s, and the cluster marks a node as unreachable after 50 s.
	eventually(t, "a minute has passed", elapsed(time.Minute))
	hold(syscall.SIGCONT)
	awaitNodes(t, nodes)
	eventually(t, "the API shows the sick container's restart", func() bool {
		p := podNamed(t, ns, "sick")
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 0
	})
	eventually(t, "all pods are ready", func() bool { return readyPods(t, ns, "") == 3 })
	unchanged(t, ns, before)
	ctl(t, "delete", "namespace", ns)
}

// TestFullDisk gives the kubelet a small file system and lets a pod fill it. The pod must be
// evicted, and the node must recover.
func TestFullDisk(t *testing.T) {
	ns := namespace(t, "full")
	inside := func(script string) {
		t.Helper()
		ctl(t, "cluster", "exec", "--name", clusterName, faulty, "--", "sh", "-ec", script)
	}
	restart := func() {
		t.Helper()
		killAndAwait(t, "kubelet-"+faulty)
		awaitNodes(t, nodes)
	}
	images, err := filepath.Glob("../../.build/images/*.tar")
	if err != nil {
		t.Fatal(err)
	}
	for i := range images {
		if images[i], err = filepath.Abs(images[i]); err != nil {
			t.Fatal(err)
		}
	}
	system := runs(t, "kube-system")
	// Pods are not affected by the mount, because only the kubelet uses this path.
	inside(`truncate -s 200M /var/lib/small.img
mkfs.ext4 -q -m 0 /var/lib/small.img
mkdir -p /var/lib/small
mount -o loop /var/lib/small.img /var/lib/small
cd /var/lib/kubelet
for f in *; do [ "$f" = pods ] || cp -a "$f" /var/lib/small; done
mkdir /var/lib/small/pods
sed -i '/evictionPressureTransitionPeriod/d' /var/lib/small/config.yaml
echo 'evictionPressureTransitionPeriod: 5s' >>/var/lib/small/config.yaml
mount --bind /var/lib/small /var/lib/kubelet`)
	defer func() {
		inside(`umount -l /var/lib/kubelet; umount -l /var/lib/small; rm -rf /var/lib/small /var/lib/small.img`)
		restart()
		// Load the images again, because the kubelet removed the unused ones to free disk space.
		ctl(t, append([]string{"cluster", "load", "--name", clusterName, "--data-dir",
			filepath.Join(shared.dir, "data")}, images...)...)
	}()
	restart()
	create(t, ns, onNode("calm", faulty, "sleep 10000", ""))
	eventually(t, "the calm pod is ready", func() bool { p := podNamed(t, ns, "calm"); return ready(p) })
	before := runs(t, ns)
	create(t, ns, onNode("greedy", faulty, "dd if=/dev/zero of=/data/all bs=1M; sync; sleep 10000", ""))
	eventually(t, "the node says that its disk is full",
		func() bool { return condition(t, faulty, v1.NodeDiskPressure).Status == v1.ConditionTrue })
	eventually(t, "the pod that filled it is evicted", func() bool {
		p := podNamed(t, ns, "greedy")
		return p.Status.Phase == v1.PodFailed && p.Status.Reason == "Evicted"
	})
	eventually(t, "the disk is not full any more",
		func() bool { return condition(t, faulty, v1.NodeDiskPressure).Status == v1.ConditionFalse })
	create(t, ns, onNode("later", faulty, "sleep 10000", ""))
	eventually(t, "the next pod is ready", func() bool { p := podNamed(t, ns, "later"); return ready(p) })
	unchanged(t, ns, before)
	ctl(t, "delete", "namespace", ns)
	eventually(t, "the namespace is gone", func() bool { return len(pods(t, ns, "")) == 0 })
	now := runs(t, "kube-system")
	if !maps.Equal(system, now) {
		t.Errorf("system pods: %v before, %v after", system, now)
	}
}
