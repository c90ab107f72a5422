// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestEmulatedVersion creates a control plane that emulates Kubernetes 1.36, ends the emulation, and
// emulates 1.36 once more. All processes must work each time, and objects must survive also while
// their kind is not served.
func TestEmulatedVersion(t *testing.T) {
	const name = "e2e-emulated"
	kubeconfig := filepath.Join(shared.dir, "emulated.conf")
	c := func(args ...string) string { return ctl(t, append([]string{"cluster", "--name", name}, args...)...) }
	k := func(args ...string) string { return ctl(t, append([]string{"--kubeconfig", kubeconfig}, args...)...) }
	downAtEnd(t, name)

	// works checks which release is emulated, and that the controller manager and the scheduler work:
	// a new namespace gets a service account, and a new pod a condition.
	works := func(namespace, minor string) {
		t.Helper()
		if out := k("get", "--raw", "/version"); !strings.Contains(out, `"emulationMinor": "`+minor+`"`) {
			t.Errorf("%s: want 1.%s in %s", namespace, minor, out)
		}
		k("create", "namespace", namespace)
		k("wait", "--timeout=1m", "--for=create", "serviceaccount/default", "-n", namespace)
		k("run", "p", "--image=nginx:1.27", "-n", namespace)
		k("wait", "--timeout=1m", "--for=condition=PodScheduled=false", "pod/p", "-n", namespace)
	}
	fails := func(args ...string) {
		t.Helper()
		if out, err := try(t, "", append([]string{"--kubeconfig", kubeconfig}, args...)...); err == nil {
			t.Errorf("%v did not fail: %s", args, out)
		}
	}
	bundles := []string{"get", "clustertrustbundles.v1.certificates.k8s.io"}
	c("up", "--nodes", "0", "--emulated-version", "1.36", "--kubeconfig", kubeconfig,
		"--data-dir", filepath.Join(shared.dir, "emulated"))
	works("before", "36")
	fails(bundles...)
	k("create", "configmap", "-n", "before", "kept")

	c("upgrade")
	works("lifted", "37")
	k("get", "configmap", "-n", "before", "kept")
	if out, err := try(t, `{"apiVersion":"resource.k8s.io/v1","kind":"DeviceTaintRule","metadata":{"name":"kept"},"spec":{
		"deviceSelector":{"driver":"d.example.com"},"taint":{"key":"example.com/broken","effect":"NoSchedule"}}}`,
		"--kubeconfig", kubeconfig, "create", "-f", "-"); err != nil {
		t.Fatal(out, err)
	}
	eventually(t, "a bundle is published", func() bool {
		return strings.Contains(k(bundles...), "kube-apiserver-serving")
	})

	c("upgrade", "--emulated-version", "1.36")
	works("again", "36")
	fails(bundles...)
	k("get", "configmap", "-n", "before", "kept")

	c("upgrade")
	works("after", "37")
	k("get", "devicetaintrules", "kept")
	k(bundles...)
	if out, err := try(t, "", "cluster", "--name", name, "upgrade", "--emulated-version", "1.35"); err == nil ||
		!strings.Contains(out, "want 1.36 or 1.37, have 1.35") {
		t.Errorf("unknown release: %v, %s", err, out)
	}
}
