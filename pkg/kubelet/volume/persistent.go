// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	volumehelper "k8s.io/component-helpers/storage/volume"
	"k8s.io/mount-utils"

	"keelson.dev/keelson/pkg/kubelet/csi"
	"keelson.dev/keelson/pkg/kubelet/metrics"
)

// claimProtection is the finalizer that prevents the removal of a claim while pods use it. The
// kubelet still sets up a claim that is being deleted if it has this finalizer, because a pod that
// uses it may restart its containers.
const claimProtection = "kubernetes.io/pvc-protection"

// makeClaim sets up the persistent volume to which the pod's claim is bound.
func (m *Manager) makeClaim(ctx context.Context, pod *v1.Pod, v *v1.Volume, readOnly bool) (prepared, error) {
	name := claimName(pod, v)
	pvc, pv, err := m.readClaim(ctx, pod, name, metav1.GetOptions{})
	if err == nil && v.Ephemeral != nil {
		err = ephemeral.VolumeIsForPod(pod, pvc)
	}
	if err == nil {
		err = checkUse(pod, v.Name, pv)
	}
	if err != nil {
		return prepared{}, &Error{Reason: ReasonFailedMount, Volume: v.Name, Err: fmt.Errorf(
			// Users see this message. Its wording is the same as in Kubernetes.
			"Unable to attach or mount volumes: unmounted volumes=[%s], unattached volumes=[], failed to "+
				"process volumes=[%s]: error processing PVC %s/%s: %w",
			v.Name, v.Name, pod.Namespace, name, err)}
	}
	if m.cfg.NodeLabels != nil {
		if err := volumehelper.CheckNodeAffinity(pv, m.cfg.NodeLabels()); err != nil {
			return prepared{}, &Error{Reason: ReasonFailedMount, Volume: pv.Name,
				Operation: "MountVolume.NodeAffinity check failed", Err: err}
		}
	}
	p, err := m.mount(persistentPlugin(&pv.Spec.PersistentVolumeSource), isBlock(pv), func() (prepared, error) {
		return m.makePersistent(ctx, pod, v.Name, pv, readOnly)
	})
	if err != nil {
		return prepared{}, setUpError(pv.Name, err)
	}
	if p.persistent() != nil && needsGrowth(pvc, pv) {
		// The volume may have grown while no pod used it. If the driver cannot grow it while it is
		// mounted, the pod uses it with its present size.
		if err := m.expand(ctx, pod, pvc, pv, p); err != nil && !inUse(err) {
			return prepared{}, setUpError(pv.Name, err)
		}
	}
	return p, nil
}

// readClaim returns a claim and its volume. It returns an error unless they are bound to each
// other.
func (m *Manager) readClaim(ctx context.Context, pod *v1.Pod, name string,
	o metav1.GetOptions) (*v1.PersistentVolumeClaim, *v1.PersistentVolume, error) {
	pvc, err := m.cfg.Client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, o)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("failed to fetch PVC from API server: %w", err)
	case pvc.DeletionTimestamp != nil && !slices.Contains(pvc.Finalizers, claimProtection):
		return nil, nil, errors.New("PVC is being deleted")
	case pvc.Status.Phase != v1.ClaimBound:
		return nil, nil, errors.New("PVC is not bound")
	case pvc.Spec.VolumeName == "":
		return nil, nil, errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	pv, err := m.cfg.Client.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, o)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("failed to fetch PV %s from API server: %w", pvc.Spec.VolumeName, err)
	case pv.Spec.ClaimRef == nil:
		return nil, nil, fmt.Errorf(
			"found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", pv.Name)
	case pv.Spec.ClaimRef.UID != pvc.UID:
		return nil, nil, fmt.Errorf(
			"found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s", pv.Name,
			pv.Spec.ClaimRef.UID, pvc.UID)
	}
	return pvc, pv, nil
}

func (m *Manager) makePersistent(ctx context.Context, pod *v1.Pod, volume string, pv *v1.PersistentVolume,
	readOnly bool) (prepared, error) {
	block := isBlock(pv)
	switch s := &pv.Spec.PersistentVolumeSource; {
	case s.HostPath != nil:
		if block {
			return blockDevice(s.HostPath.Path, readOnly)
		}
		return makeHostPath(s.HostPath, readOnly)
	case s.Local != nil:
		return m.makeLocal(pod, pv, readOnly)
	case s.NFS != nil:
		return m.makeNFS(pod, pv.Name, s.NFS, pv.Spec.MountOptions, readOnly || s.NFS.ReadOnly)
	case s.CSI != nil:
		labels, err := m.labels(pod, volume)
		if err != nil {
			m.cfg.Metrics.Labels.LabelError(metrics.AccessMode(pv))
			return prepared{}, err
		}
		return m.makeDriven(ctx, pod, csi.Volume{PV: pv, ReadOnly: readOnly, Group: fsGroup(pod), Labels: labels})
	}
	return prepared{}, errors.New("no volume plugin matched")
}

// blockDevice returns the block device at path as a prepared volume, or an error if path is not a
// block device.
func blockDevice(path string, readOnly bool) (prepared, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return prepared{}, fmt.Errorf("block device: %w", err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return prepared{}, fmt.Errorf("block device: %w", err)
	}
	if !isBlockDevice(info.Mode()) {
		return prepared{}, fmt.Errorf("%s is not a block device", path)
	}
	return prepared{device: resolved, readOnly: readOnly}, nil
}

// makeNFS mounts an NFS export with mount.nfs, the mount helper of the node's NFS client.
func (m *Manager) makeNFS(pod *v1.Pod, name string, s *v1.NFSVolumeSource, options []string,
	readOnly bool) (prepared, error) {
	dir := m.volumeDir(pod.UID, pluginNFS, name)
	p := prepared{path: dir, readOnly: readOnly}
	if err := makeDir(dir, 0o750); err != nil {
		return prepared{}, err
	}
	mounted, err := isMount(dir)
	if err != nil || mounted {
		return p, err
	}
	if readOnly {
		options = append([]string{"ro"}, options...)
	}
	server := s.Server
	if ip := net.ParseIP(server); ip != nil && ip.To4() == nil {
		server = "[" + server + "]"
	}
	if err := mount.New("").Mount(server+":"+s.Path, dir, "nfs", options); err != nil {
		return prepared{}, errors.Join(fmt.Errorf("mount failed: %w", err), removeEmptyDir(dir))
	}
	return p, nil
}

// removeEmptyDir removes the mount point after a mount has failed. It keeps a directory that is
// mounted or not empty.
func removeEmptyDir(dir string) error {
	if mounted, err := isMount(dir); err != nil || mounted {
		return err
	}
	return os.Remove(dir)
}
