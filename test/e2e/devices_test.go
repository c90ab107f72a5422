// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const number = v1.ResourceName("test.keelson.dev/number")

// buildPlugin builds the sample device plugin into a directory that is visible on nodes. It returns
// the program's path there.
func buildPlugin(t *testing.T) string {
	t.Helper()
	const name = "test-deviceplugin"
	file, err := filepath.Abs("../../bin/" + name)
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", file, "../deviceplugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _ = os.Remove(file) })
	return "/run/keelson/bin/" + name
}

// TestDevicesSurvive checks that pods keep their devices when a kubelet and a device plugin are
// killed, and that later pods get devices.
func TestDevicesSurvive(t *testing.T) {
	ns, program := namespace(t, "devices"), buildPlugin(t)
	inside := func(script string) string {
		t.Helper()
		return ctl(t, "cluster", "exec", "--name", clusterName, faulty, "--", "sh", "-c", script)
	}
	plug := func() { inside(program + " >/run/plugin.log 2>&1 </dev/null & echo $! >/run/plugin.pid") }
	unplug := func() { inside("kill -9 $(cat /run/plugin.pid)") }
	left := func(want int64) func() bool {
		return func() bool {
			n, err := shared.client.CoreV1().Nodes().Get(t.Context(), faulty, metav1.GetOptions{})
			q := v1.ResourceList{}
			if err == nil {
				q = n.Status.Allocatable
			}
			have, ok := q[number]
			return ok && have.Value() == want
		}
	}
	asks := func(name string) string {
		return onNode(name, faulty, "echo $DEVICES; sleep 10000", "    resources: {limits: {test.keelson.dev/number: 1}}\n")
	}
	runsWith := func(name string) string {
		t.Helper()
		eventually(t, name+" is ready", func() bool { p := podNamed(t, ns, name); return ready(p) })
		var out string
		eventually(t, name+" reports its device",
			func() bool { out = strings.TrimSpace(ctl(t, "-n", ns, "logs", name)); return out != "" })
		return out
	}
	plug()
	defer unplug()
	eventually(t, "two devices", left(2))
	create(t, ns, asks("a"))
	first := runsWith("a")
	before := runs(t, ns)
	killAndAwait(t, "kubelet-"+faulty)
	awaitNodes(t, nodes)
	eventually(t, "two devices after the kubelet's restart", left(2))
	create(t, ns, asks("b"))
	eventually(t, "b is let in", func() bool {
		p := podNamed(t, ns, "b")
		if p.Status.Phase != v1.PodFailed {
			return p.Status.Phase == v1.PodRunning
		}
		// Pod b failed because it started before the plugin ran again. The scheduler could place it
		// because the kubelet had reported the node's devices before it was killed.
		ctl(t, "-n", ns, "delete", "pod", "b")
		create(t, ns, asks("b"))
		return false
	})
	if second := runsWith("b"); second == first {
		t.Errorf("%s is given twice", first)
	}
	unplug()
	eventually(t, "no device without its plugin", left(0))
	plug()
	eventually(t, "two devices when it is back", left(2))
	unchanged(t, ns, before)
	create(t, ns, asks("c"))
	eventually(t, "there is no third", func() bool {
		p := podNamed(t, ns, "c")
		return p.Status.Phase == v1.PodFailed && p.Status.Reason == "UnexpectedAdmissionError"
	})
	ctl(t, "-n", ns, "delete", "pod", "a")
	create(t, ns, asks("d"))
	if d := runsWith("d"); d != first {
		t.Errorf("the device that became free is %s, and %s was given", first, d)
	}
	ctl(t, "delete", "namespace", ns)
}
