// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// steps has the calls to a CSI driver during the lifetime of a volume, in order. The field by is
// the action of the user that causes the call.
var steps = []struct{ method, by string }{
	{"CreateVolume", "use"}, {"ControllerPublishVolume", "use"}, {"NodeStageVolume", "use"}, {"NodePublishVolume", "use"},
	{"NodeUnpublishVolume", "leave"}, {"NodeUnstageVolume", "leave"}, {"ControllerUnpublishVolume", "leave"},
	{"ControllerExpandVolume", "grow"}, {"NodeExpandVolume", "use again"},
	{"DeleteVolume", "delete"},
}

// victims has the processes that the test kills during a call to the driver.
var victims = []struct {
	name string
	kill func(t *testing.T)
}{
	{"kubelet", func(t *testing.T) { killAndAwait(t, "kubelet-n1") }},
	{"controller manager", func(t *testing.T) { killAndAwait(t, "controller-manager") }},
	{"driver", killDriver},
}

// killDriver kills the driver's processes and deletes their pods. Without the deletion, the kubelet
// would restart the containers with growing delays.
func killDriver(t *testing.T) {
	t.Helper()
	old := pods(t, "csi", "app=node")
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err != nil || !strings.HasPrefix(string(line), "/driver\x00--node=") {
			continue
		}
		// Skip driver processes of other clusters on this machine.
		if group, err := os.ReadFile(filepath.Join(filepath.Dir(f), "cgroup")); err != nil ||
			!strings.Contains(string(group), "/keelson/"+clusterName+"/") {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(f, "/proc/%d/", &pid); err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed < nodes { // more may be killed, because a deleted pod's process may still exist
		t.Fatalf("killed %d drivers", killed)
	}
	ctl(t, "-n", "csi", "delete", "pods", "-l", "app=node", "--force", "--grace-period=0")
	eventually(t, "the drivers are back", func() bool {
		now := 0
		for _, p := range pods(t, "csi", "app=node") {
			if ready(&p) && p.UID != old[0].UID && p.UID != old[1].UID {
				now++
			}
		}
		return now == nodes
	})
}

// holdAt makes the driver pause at a step. It returns two functions: reached waits until the driver
// pauses there, and release lets the driver continue.
func holdAt(t *testing.T, moment string) (reached, release func()) {
	t.Helper()
	file := filepath.Join(driverFiles, "hold", moment)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	reached = func() {
		t.Helper()
		eventually(t, "the driver is at "+moment, func() bool {
			_, err := os.Stat(file + ".reached")
			return err == nil
		})
	}
	return reached, func() {
		t.Helper()
		for _, f := range []string{file, file + ".reached"} {
			if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
}

// TestDriverCrashes kills each of the victims at each step in the lifetime of a volume. Afterwards
// no data may be lost, no volume may be attached to two nodes, and nothing may be left over. The
// kill comes before the driver completes the step and after it, in alternation. The tests of the
// packages involved cover both cases of each step.
func TestDriverCrashes(t *testing.T) {
	installDriver(t)
	for i, v := range victims {
		t.Run(v.name, func(t *testing.T) { crashedLife(t, v.kill, i) })
	}
}

// crashedLife uses a volume from its creation to its deletion, and calls kill during each step. The
// argument first determines whether the first kill comes before or after the step.
func crashedLife(t *testing.T, kill func(*testing.T), first int) {
	ns := namespace(t, fmt.Sprint("crash-", first))
	moment := func(i int) string { return steps[i].method + [...]string{".before", ".after"}[(first+i)%2] }
	u := volumeUser{t, ns}
	acts := map[string]func(){"use": u.claim, "leave": u.leave, "grow": u.grow, "use again": u.use, "delete": u.delete}
	done := map[string]func(){"use": u.writes, "leave": u.left, "grow": func() {}, "use again": u.grown, "delete": u.gone}
	for i, s := range steps {
		reached, release := holdAt(t, moment(i))
		if i == 0 || steps[i-1].by != s.by {
			acts[s.by]()
		}
		reached()
		if n := len(attachments(t, "test.csi.keelson.dev")); n > 1 {
			t.Errorf("%s: attached %d times", s.method, n)
		}
		// Set the hold for the next step before the current hold is released.
		if i+1 < len(steps) && steps[i+1].by == s.by {
			_, _ = holdAt(t, moment(i+1))
		}
		kill(t)
		release()
		if i+1 == len(steps) || steps[i+1].by != s.by {
			done[s.by]()
		}
	}
}

// volumeUser creates and deletes pods that use a claim.
type volumeUser struct {
	t  *testing.T
	ns string
}

func (u volumeUser) ctl(args ...string) string {
	return ctl(u.t, append([]string{"-n", u.ns}, args...)...)
}

func (u volumeUser) create(manifest string) {
	if out, err := try(u.t, manifest, "-n", u.ns, "create", "-f", "-"); err != nil {
		u.t.Fatalf("%v\n%s", err, out)
	}
}

func (u volumeUser) claim() {
	_, claim, _ := strings.Cut(claimsManifest, "---\n") // the claim for a block device
	u.create(claim)
	u.use()
}

func (u volumeUser) use() {
	pod := strings.NewReplacer("NODE", "n1", "    volumeMounts: [{name: files, mountPath: /files}]\n", "",
		"  - {name: files, persistentVolumeClaim: {claimName: files}}\n", "").Replace(movesManifest)
	u.create(pod)
}

func (u volumeUser) uses() {
	u.t.Helper()
	eventually(u.t, "the pod is ready", func() bool {
		p, err := shared.client.CoreV1().Pods(u.ns).Get(u.t.Context(), "user", metav1.GetOptions{})
		return err == nil && ready(p)
	})
}

func (u volumeUser) writes() {
	u.t.Helper()
	u.uses()
	eventually(u.t, "it writes", func() bool {
		_, err := try(u.t, "", "-n", u.ns, "exec", "user", "--", "sh", "-c",
			"echo kept | dd of=/dev/mine bs=4096 count=1 conv=sync,fsync")
		return err == nil
	})
	if len(devicesOf(u.t, volumesOf(u.t, u.ns))) != 1 {
		u.t.Error("the volume in use has no device")
	}
}

func (u volumeUser) grow() {
	u.ctl("patch", "pvc", "device", "--type=merge", "-p", `{"spec":{"resources":{"requests":{"storage":"32Mi"}}}}`)
}

func (u volumeUser) grown() {
	u.t.Helper()
	u.uses()
	eventually(u.t, "it has grown", func() bool {
		out, err := try(u.t, "", "-n", u.ns, "get", "pvc", "device", "-o", "jsonpath={.status.capacity.storage}")
		return err == nil && out == "32Mi"
	})
	eventually(u.t, "what was written is there", func() bool {
		out, err := try(u.t, "", "-n", u.ns, "exec", "user", "--", "head", "-c", "5", "/dev/mine")
		return err == nil && out == "kept\n"
	})
}

func (u volumeUser) leave() { u.ctl("delete", "pod", "user", "--wait=false") }

func (u volumeUser) left() {
	u.t.Helper()
	eventually(u.t, "the pod is gone and nothing is attached", func() bool {
		_, err := shared.client.CoreV1().Pods(u.ns).Get(u.t.Context(), "user", metav1.GetOptions{})
		return err != nil && len(attachments(u.t, "test.csi.keelson.dev")) == 0
	})
	if left := devicesOf(u.t, volumesOf(u.t, u.ns)); len(left) > 0 {
		u.t.Errorf("loop devices: %v", left)
	}
	noMounts(u.t)
}

func (u volumeUser) delete() {
	u.leave()
	u.left()
	u.ctl("delete", "pvc", "device", "--wait=false")
}

func (u volumeUser) gone() {
	u.t.Helper()
	eventually(u.t, "claim and volume are gone", func() bool {
		_, err := shared.client.CoreV1().PersistentVolumeClaims(u.ns).Get(u.t.Context(), "device", metav1.GetOptions{})
		return err != nil && len(volumesOf(u.t, u.ns)) == 0
	})
	if left, err := os.ReadDir(filepath.Join(driverFiles, "volumes")); err != nil || len(left) > 0 {
		u.t.Errorf("the driver has %v, %v", left, err)
	}
	left, err := filepath.Glob(filepath.Join(shared.dir,
		"data/nodes/*/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-*"))
	if err != nil || len(left) > 0 {
		u.t.Errorf("on the nodes: %v, %v", left, err)
	}
}
