// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson.dev/keelson/pkg/loopdev"
)

// sidecarImages has image archives of Kubernetes' CSI sidecars. sidecarFiles is the directory in
// which their driver stores volumes. sidecarManifests has the CRDs and roles from the releases of
// the sidecars.
const (
	sidecarImages    = "../../.build/e2e-images/sidecars"
	sidecarManifests = "../../.build/e2e-images/sidecars/manifests"
	sidecarFiles     = "/srv/keelson-e2e-csi-sidecars"
)

// filesManifest is a pod on a given node, with a volume that has a file system.
const filesManifest = `apiVersion: v1
kind: Pod
metadata: {name: CLAIM}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: NODE}
  containers:
  - name: user
    image: busybox:1.36
    command: [sleep, infinity]
    volumeMounts: [{name: files, mountPath: /files}]
  volumes: [{name: files, persistentVolumeClaim: {claimName: CLAIM}}]
`

const (
	sidecarClaim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: first}
spec: {accessModes: [ReadWriteOnce], storageClassName: sidecars, resources: {requests: {storage: 16Mi}}}
`
	sidecarSnapshot = `apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: taken}
spec: {volumeSnapshotClassName: sidecars, source: {persistentVolumeClaimName: first}}
`
	restoredClaim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: restored}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: sidecars
  resources: {requests: {storage: 32Mi}}
  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: taken}
`
)

// TestSidecars runs a CSI driver with Kubernetes' sidecars, as a vendor would ship it. The sidecars
// create a volume, attach it, expand it, take a snapshot, and create a volume from the snapshot. At
// the end nothing may be left over.
func TestSidecars(t *testing.T) {
	installSidecars(t)
	ns := namespace(t, "sidecars")
	n := func(args ...string) []string { return append([]string{"-n", ns}, args...) }
	create := func(manifest string) {
		if out, err := try(t, manifest, n("create", "-f", "-")...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	in := func(pod, script string) string { return ctl(t, n("exec", pod, "--", "sh", "-c", script)...) }
	on := func(node, claim string) {
		create(strings.NewReplacer("NODE", node, "CLAIM", claim).Replace(filesManifest))
		ctl(t, n("wait", "--for=condition=Ready", "pod/"+claim, "--timeout=3m")...)
	}
	create(sidecarClaim)
	on("n1", "first")
	in("first", "echo precious > /files/file && sync")
	if at := attachments(t, "sidecars.csi.keelson.dev"); len(at) != 1 || at[0] != "n1" {
		t.Errorf("attached to %v", at)
	}
	ctl(t, n("patch", "pvc", "first", "--type=merge", "-p", `{"spec":{"resources":{"requests":{"storage":"32Mi"}}}}`)...)
	eventually(t, "the claim has grown", func() bool {
		return ctl(t, n("get", "pvc", "first", "-o", "jsonpath={.status.capacity.storage}")...) == "32Mi"
	})
	create(sidecarSnapshot)
	eventually(t, "the snapshot is ready", func() bool {
		return ctl(t, n("get", "volumesnapshot", "taken", "-o",
			"jsonpath={.status.readyToUse}/{.status.restoreSize}")...) == "true/32Mi"
	})
	in("first", "echo later > /files/file && sync")
	create(restoredClaim)
	on("n2", "restored")
	if first, restored := in("first", "cat /files/file"),
		in("restored", "cat /files/file"); first != "later\n" || restored != "precious\n" {
		t.Errorf("the volume has %q, the one of its snapshot %q", first, restored)
	}
	ctl(t, n("delete", "pod", "--all")...)
	ctl(t, n("delete", "volumesnapshot", "--all")...)
	ctl(t, n("delete", "pvc", "--all")...)
	eventually(t, "nothing is left in the API", func() bool {
		return len(volumesOf(t, ns)) == 0 && len(attachments(t, "sidecars.csi.keelson.dev")) == 0 &&
			ctl(t, "get", "volumesnapshotcontents", "-o", "name") == ""
	})
	for _, kind := range []string{"volumes", "snapshots"} {
		if left, err := os.ReadDir(filepath.Join(sidecarFiles, kind)); err != nil || len(left) > 0 {
			t.Errorf("the driver has %s %v, %v", kind, left, err)
		}
	}
	noMounts(t)
}

// installSidecars installs the CSI driver of test/csi with Kubernetes' sidecars until the test
// ends.
func installSidecars(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(sidecarFiles); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(loopdev.DetachBelow(sidecarFiles), os.RemoveAll(sidecarFiles)) })
	images, err := filepath.Glob(filepath.Join(sidecarImages, "*.tar"))
	if err != nil || len(images) != 5 {
		t.Fatalf("images %v, %v", images, err)
	}
	for _, image := range append(images, driverImage) {
		path, err := filepath.Abs(image)
		if err != nil {
			t.Fatal(err)
		}
		ctl(t, "cluster", "load", "--name", clusterName, "--data-dir", filepath.Join(shared.dir, "data"), path)
	}
	ctl(t, "apply", "-f", sidecarManifests)
	t.Cleanup(func() { _ = shared.command(context.Background(), "delete", "-f", sidecarManifests).Run() })
	ctl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=1m")
	for _, file := range []string{"testdata/snapshot-controller.yaml", "testdata/csi-sidecars.yaml"} {
		ctl(t, "apply", "-f", file)
		t.Cleanup(func() { _ = shared.command(context.Background(), "delete", "-f", file).Run() })
	}
	for _, w := range []string{"deployment/controller", "daemonset/node"} {
		ctl(t, "-n", "csi-sidecars", "rollout", "status", w)
	}
	ctl(t, "-n", "kube-system", "rollout", "status", "deployment/snapshot-controller")
}
