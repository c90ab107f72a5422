// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// limitedPod is a pod on a node, with a claim that has the same name as the pod.
const limitedPod = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: NAME}
spec: {accessModes: [ReadWriteOnce], storageClassName: csi, resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: n1}
  containers:
  - name: user
    image: busybox:1.36
    command: [sleep, infinity]
    volumeMounts: [{name: files, mountPath: /files}]
  volumes: [{name: files, persistentVolumeClaim: {claimName: NAME}}]
`

// TestVolumeLimit checks that a node accepts as many volumes as its CSI driver permits. One more
// pod stays pending with a reason. It runs after another pod is deleted or the limit is raised.
func TestVolumeLimit(t *testing.T) {
	installDriver(t)
	ns := namespace(t, "volume-limit")
	n := func(args ...string) []string { return append([]string{"-n", ns}, args...) }
	create := func(name string) {
		if out, err := try(t, strings.ReplaceAll(limitedPod, "NAME", name), n("create", "-f", "-")...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	allow := func(volumes int) {
		t.Helper()
		flag := fmt.Sprintf(
			`[{"op":"replace","path":"/spec/template/spec/containers/0/args/2","value":"--max-volumes=%d"}]`, volumes)
		ctl(t, "-n", "csi", "patch", "daemonset", "node", "--type=json", "-p", flag)
		ctl(t, "-n", "csi", "rollout", "status", "daemonset", "node")
		eventually(t, fmt.Sprintf("the node takes %d volumes", volumes), func() bool {
			return ctl(t, "get", "csinode", "n1", "-o",
				`jsonpath={.spec.drivers[?(@.name=="test.csi.keelson.dev")].allocatable.count}`) == fmt.Sprint(volumes)
		})
	}
	runs := func(name string) { ctl(t, n("wait", "--for=condition=Ready", "pod/"+name, "--timeout=3m")...) }
	waits := func(name string) {
		t.Helper()
		eventually(t, name+" stays pending with a reason", func() bool {
			why := ctl(t, n("get", "pod", name, "-o", `jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}`)...)
			return strings.Contains(why, "node(s) exceed max volume count")
		})
	}
	allow(2)
	for _, name := range []string{"a", "b"} {
		create(name)
		runs(name)
	}
	create("c")
	waits("c")
	ctl(t, n("delete", "pod", "a")...)
	runs("c")
	create("d")
	waits("d")
	allow(3)
	runs("d")
	ctl(t, n("delete", "pod,pvc", "--all")...)
	eventually(t, "no volume is left in the API", func() bool { return len(volumesOf(t, ns)) == 0 })
	noMounts(t)
}
