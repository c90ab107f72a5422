// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/loopdev"
)

// ownVolumes returns a pattern for the paths of the volumes of the default storage class, on the
// machine.
func ownVolumes() string {
	return filepath.Join(shared.dir, "data", "nodes", "*", "var/lib/kubelet/plugins/disk.csi.keelson.dev/volumes/*")
}

// setManifest is a StatefulSet as in tutorials: its claims have no storage class.
const setManifest = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  podManagementPolicy: Parallel
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {fsGroup: 4000}
      containers:
      - name: db
        image: busybox:1.36
        command: [sleep, infinity]
        securityContext: {runAsUser: 4000}
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 32Mi}}
`

// TestDefaultClass checks that claims without a storage class get volumes of the requested size on
// the disk of their pod's node. The data must still be there after the pod is recreated, and
// nothing may be left after the claims are deleted.
func TestDefaultClass(t *testing.T) {
	ns := namespace(t, "default-class")
	n := func(args ...string) []string { return append([]string{"-n", ns}, args...) }
	in := func(pod, script string) string { return ctl(t, n("exec", pod, "--", "sh", "-c", script)...) }
	if out, err := try(t, setManifest, n("create", "-f", "-")...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "both pods are ready", func() bool { return readyPods(t, ns, "app=db") == 2 })
	t.Run("holds what it was asked for", func(t *testing.T) {
		in("db-0", "echo precious > /data/file && sync")
		if out := in("db-0",
			"dd if=/dev/zero of=/data/large bs=1M count=64 2>&1; rm /data/large; ls /data"); !strings.Contains(
			out, "No space left") || !strings.HasSuffix(out, "file\n") {
			t.Error(out)
		}
		if out := in("db-1", "ls /data"); out != "" {
			t.Errorf("the other volume has %s", out)
		}
	})
	t.Run("grows", func(t *testing.T) {
		ctl(t, n("patch", "pvc", "data-db-0", "--type=merge", "-p",
			`{"spec":{"resources":{"requests":{"storage":"96Mi"}}}}`)...)
		eventually(t, "the disk has grown", func() bool {
			return ctl(t, n("get", "pvc", "data-db-0", "-o",
				"jsonpath={.status.allocatedResources.storage}/"+
					"{.status.allocatedResourceStatuses.storage}")...) == "96Mi/NodeResizePending" ||
				ctl(t, n("get", "pvc", "data-db-0", "-o", "jsonpath={.status.capacity.storage}")...) == "96Mi"
		})
		// Recreate the pod to expand the file system. The kubelet has already expanded it while the
		// pod ran if the kubelet has all capabilities of root.
		ctl(t, n("delete", "pod", "db-0")...)
		eventually(t, "the pod is back", func() bool { return readyPods(t, ns, "app=db") == 2 })
		eventually(t, "the claim says so", func() bool {
			return ctl(t, n("get", "pvc", "data-db-0", "-o", "jsonpath={.status.capacity.storage}")...) == "96Mi"
		})
		if out := in("db-0",
			"dd if=/dev/zero of=/data/large bs=1M count=64 2>&1 && cat /data/file"); !strings.HasSuffix(out, "precious\n") {
			t.Error(out)
		}
	})
	t.Run("a node that is killed", func(t *testing.T) {
		node := ctl(t, n("get", "pod", "db-0", "-o", "jsonpath={.spec.nodeName}")...)
		in("db-0", "echo more >> /data/file && sync /data/file")
		ctl(t, "cluster", "node", "kill", node, "--name", clusterName)
		ctl(t, "cluster", "node", "start", node, "--name", clusterName)
		awaitNodes(t, nodes)
		eventually(t, "its file is there", func() bool {
			out, err := try(t, "", n("exec", "db-0", "--", "cat", "/data/file")...)
			return err == nil && out == "precious\nmore\n"
		})
	})
	t.Run("kubelets are asked for nothing else", askedForNothingElse)
	volumes := volumesOf(t, ns)
	if len(devicesOf(t, volumes)) != len(volumes) {
		t.Errorf("volumes %v have the devices %v", volumes, devicesOf(t, volumes))
	}
	ctl(t, n("delete", "statefulset", "db")...)
	eventually(t, "no volume is left in the API", func() bool { return len(volumesOf(t, ns)) == 0 })
	eventually(t, "no volume is left on a disk", func() bool {
		left, err := filepath.Glob(ownVolumes())
		return err == nil && len(left) == 0
	})
	eventually(t, "no device is left", func() bool { return len(devicesOf(t, volumes)) == 0 })
}

// askedForNothingElse checks that the service account that calls CSI drivers has no other access to
// kubelets.
func askedForNothingElse(t *testing.T) {
	const drivers = "/apis/storage.keelson.dev/v1alpha1/nodes/n1/csi/disk.csi.keelson.dev/"
	for path, want := range map[string]string{
		drivers + "csi.v1.Identity/Probe":                                       "",
		drivers + "csi.v1.Node/NodeGetInfo":                                     "only the services",
		"/api/v1/nodes/n1/proxy/csi/disk.csi.keelson.dev/csi.v1.Identity/Probe": `cannot create resource "nodes/proxy"`,
		"/api/v1/nodes/n1/proxy/run/kube-system/coredns/coredns?cmd=id":         `cannot create resource "nodes/proxy"`,
		"/api/v1/nodes/n1/proxy/exec/kube-system/coredns/coredns?command=id":    `cannot create resource "nodes/proxy"`,
	} {
		out, err := try(t, "", "--as=system:serviceaccount:kube-system:csi-drivers-controller", "create",
			"--raw", path, "-f", "-")
		if (err == nil) != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %s", path, err, out)
		}
	}
}

// volumesOf returns the names of the PersistentVolumes of a namespace's claims.
func volumesOf(t *testing.T, ns string) []string {
	t.Helper()
	list, err := shared.client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range list.Items {
		if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == ns {
			names = append(names, v.Name)
		}
	}
	return names
}

// devicesOf returns the machine's loop devices that belong to the volumes. The kernel shows for
// each loop device the path of its file as the driver used it, even after the file is removed. With
// all drivers of these tests, the file's name contains the name of the volume.
func devicesOf(t *testing.T, volumes []string) []string {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		of := func(volume string) bool { return strings.Contains(string(b), "/"+volume+"/") }
		if err == nil && slices.ContainsFunc(volumes, of) {
			out = append(out, f+": "+string(b))
		}
	}
	return out
}

// driverImage is an image archive with the program of test/csi. driverFiles is the directory that
// represents the driver's network storage.
const (
	driverImage = "../../.build/e2e-images/csi.tar"
	driverFiles = "/srv/keelson-e2e-csi"
)

// movesManifest is a pod on a given node. It has two volumes of the driver of test/csi, one with a
// file system and one as a block device.
const movesManifest = `apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: NODE}
  containers:
  - name: user
    image: busybox:1.36
    command: [sleep, infinity]
    volumeMounts: [{name: files, mountPath: /files}]
    volumeDevices: [{name: device, devicePath: /dev/mine}]
  volumes:
  - {name: files, persistentVolumeClaim: {claimName: files}}
  - {name: device, persistentVolumeClaim: {claimName: device}}
`

const claimsManifest = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: files}
spec: {accessModes: [ReadWriteOnce], storageClassName: csi, resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: device}
spec: {accessModes: [ReadWriteOnce], storageClassName: csi, volumeMode: Block, resources: {requests: {storage: 16Mi}}}
`

// TestDriver tests the whole lifetime of the volumes of a CSI driver without sidecars. Volumes are
// created when a pod needs them, move with the pod to another node, are expanded, and are deleted
// without leftovers.
func TestDriver(t *testing.T) {
	installDriver(t)
	ns := namespace(t, "driver")
	n := func(args ...string) []string { return append([]string{"-n", ns}, args...) }
	in := func(script string) string { return ctl(t, n("exec", "user", "--", "sh", "-c", script)...) }
	create := func(manifest string) {
		if out, err := try(t, manifest, n("create", "-f", "-")...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	on := func(node string) {
		create(strings.Replace(movesManifest, "NODE", node, 1))
		ctl(t, n("wait", "--for=condition=Ready", "pod/user", "--timeout=2m")...)
	}
	create(claimsManifest)
	on("n1")
	in("echo precious > /files/file && echo kept | dd of=/dev/mine bs=4096 count=1 conv=sync,fsync")
	for _, claim := range []string{"files", "device"} {
		ctl(t, n("patch", "pvc", claim, "--type=merge", "-p", `{"spec":{"resources":{"requests":{"storage":"32Mi"}}}}`)...)
	}
	for _, claim := range []string{"files", "device"} {
		eventually(t, claim+" has grown", func() bool {
			return ctl(t, n("get", "pvc", claim, "-o", "jsonpath={.status.capacity.storage}")...) == "32Mi"
		})
	}
	in("dd if=/dev/zero of=/dev/mine bs=1M seek=31 count=1 conv=fsync")
	ctl(t, n("delete", "pod", "user")...)
	on("n2")
	if out := in("cat /files/file; head -c 5 /dev/mine"); out != "precious\nkept\n" {
		t.Errorf("on the other node: %q", out)
	}
	attached := attachments(t, "test.csi.keelson.dev")
	if len(attached) != 2 || attached[0] != "n2" || attached[1] != "n2" {
		t.Errorf("attached to %v", attached)
	}
	volumes := volumesOf(t, ns)
	if len(devicesOf(t, volumes)) != 1 {
		t.Errorf("volumes %v have the devices %v, want one of the block volume", volumes, devicesOf(t, volumes))
	}
	ctl(t, n("delete", "pod", "user")...)
	ctl(t, n("delete", "pvc", "--all")...)
	eventually(t, "no volume is left in the API", func() bool {
		return len(volumesOf(t, ns)) == 0 &&
			len(attachments(t, "test.csi.keelson.dev")) == 0
	})
	if left, err := os.ReadDir(filepath.Join(driverFiles, "volumes")); err != nil || len(left) > 0 {
		t.Errorf("the driver has %v, %v", left, err)
	}
	if left := devicesOf(t, volumes); len(left) > 0 {
		t.Errorf("loop devices: %v", left)
	}
	noMounts(t)
}

// installDriver installs the CSI driver of test/csi until the test ends.
func installDriver(t *testing.T) {
	t.Helper()
	image, err := filepath.Abs(driverImage)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(driverFiles); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(loopdev.DetachBelow(driverFiles), os.RemoveAll(driverFiles)) })
	ctl(t, "cluster", "load", "--name", clusterName, "--data-dir", filepath.Join(shared.dir, "data"), image)
	ctl(t, "apply", "-f", "testdata/csi.yaml")
	t.Cleanup(func() { _ = shared.command(context.Background(), "delete", "-f", "testdata/csi.yaml").Run() })
	ctl(t, "-n", "csi", "rollout", "status", "daemonset", "node")
}

// noMounts fails the test if any node has a mount of the driver.
func noMounts(t *testing.T) {
	t.Helper()
	for _, p := range []string{"kubelet-n1", "kubelet-n2"} {
		mounts, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pids(t)[p]), "mountinfo"))
		if err != nil || strings.Contains(string(mounts), "/keelson-e2e-csi/volumes/") ||
			strings.Contains(string(mounts), "/plugins/test.csi.keelson.dev ") ||
			strings.Contains(string(mounts), "/kubernetes.io/csi/volumeDevices/") {
			t.Errorf("mounts of %s, %v:\n%s", p, err, mounts)
		}
	}
}

// attachments returns the names of the nodes to which the volumes of a driver are attached.
func attachments(t *testing.T, driver string) []string {
	t.Helper()
	list, err := shared.client.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range list.Items {
		if a.Spec.Attacher == driver {
			out = append(out, a.Spec.NodeName)
		}
	}
	return out
}
