// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/metrics"
)

// Volume is a volume of a pod: either a persistent volume or an inline volume.
type Volume struct {
	// PV is the persistent volume. It is nil for an inline volume, which Name and Inline describe.
	PV       *v1.PersistentVolume
	Name     string
	Inline   *v1.CSIVolumeSource
	ReadOnly bool
	// Group is the ID of the group that must own the files. It is nil if no group is required.
	Group *int64
	// Labels are the SELinux labels that the pod's containers require for the files. It is empty if
	// the volume must not be mounted with a label.
	Labels []string
}

// Mounted describes a volume that was mounted for a pod.
type Mounted struct {
	// Path is the directory in which the file system is mounted. Device is the path of a block
	// volume's device on the node.
	Path, Device string
	// ChangeGroup means that the caller must still change the group of the files.
	ChangeGroup bool
	// Labelled means that the volume is mounted with an SELinux label, so that the files need no
	// labels.
	Labelled bool
}

// request holds the parameters of CSI calls for a Volume.
type request struct {
	// Identity of the volume:

	id         id
	place      place
	mode       storagev1.VolumeLifecycleMode
	attributes map[string]string
	object     *storagev1.CSIDriver

	// Parameters of the mount:

	fsType   string
	options  []string
	context  string // SELinux label with which the volume is mounted, or ""
	access   v1.PersistentVolumeAccessMode
	readOnly bool
	group    *int64

	// Metadata of the attachment, and secrets:

	publishContext               map[string]string
	stageSecrets, publishSecrets map[string]string
}

// newRequest returns the parameters that follow from the Volume alone. It calls neither the driver
// nor the API.
func newRequest(pod *v1.Pod, v Volume) request {
	r := request{readOnly: v.ReadOnly, group: v.Group, access: v1.ReadWriteOnce}
	if v.PV == nil {
		r.mode = storagev1.VolumeLifecycleEphemeral
		r.id = id{v.Inline.Driver, fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(pod.UID)+v.Name)))}
		r.place = place{pod: pod.UID, spec: v.Name}
		r.attributes = v.Inline.VolumeAttributes
		if v.Inline.FSType != nil {
			r.fsType = *v.Inline.FSType
		}
		return r
	}
	s := v.PV.Spec.CSI
	r.mode = storagev1.VolumeLifecyclePersistent
	r.id = id{s.Driver, s.VolumeHandle}
	block := v.PV.Spec.VolumeMode != nil && *v.PV.Spec.VolumeMode == v1.PersistentVolumeBlock
	r.place = place{pod: pod.UID, spec: v.PV.Name, block: block}
	r.fsType, r.attributes, r.options = s.FSType, s.VolumeAttributes, v.PV.Spec.MountOptions
	if len(v.PV.Spec.AccessModes) > 0 {
		r.access = v.PV.Spec.AccessModes[0]
	}
	return r
}

// Mount stages a volume and publishes it for a pod. The caller may call it again for the same pod;
// the driver is then called again.
func (m *Manager) Mount(ctx context.Context, pod *v1.Pod, v Volume) (Mounted, error) {
	r := newRequest(pod, v)
	var err error
	if r.object, err = m.object(ctx, r.id.driver); err != nil {
		return Mounted{}, err
	}
	if err := checkMode(r.object, r.id.driver, r.mode); err != nil {
		return Mounted{}, err
	}
	vol, done := m.reserve(r.id, r.mode == storagev1.VolumeLifecycleEphemeral)
	defer done()
	if v.PV != nil && attachRequired(r.object) {
		if r.publishContext, err = m.awaitAttached(ctx, r.id); err != nil {
			return Mounted{}, m.full(ctx, r.id.driver, err)
		}
	}
	d, err := m.driver(r.id.driver)
	if err != nil {
		return Mounted{}, err
	}
	if err := m.complete(ctx, pod, v, &r); err != nil {
		return Mounted{}, err
	}
	if r.context, err = contextOf(r.object, v.Labels); err != nil {
		m.cfg.Metrics.Labels.PodMismatch(metrics.AccessMode(v.PV))
		return Mounted{}, err
	}
	vol.asking.Lock()
	defer vol.asking.Unlock()
	if r.access == v1.ReadWriteOncePod && m.usedByAnother(vol, pod.UID) {
		return Mounted{}, errInUse
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := m.settleLabel(ctx, vol, v, &r); err != nil {
		return Mounted{}, err
	}
	mounted, err := m.mount(ctx, d, vol, r, v)
	if err == nil {
		m.countLabelled(vol, v, &r)
	}
	return mounted, err
}

// errInUse is returned for a ReadWriteOncePod volume that another pod uses.
var errInUse = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")

// usedByAnother reports whether any pod other than the given one uses the volume.
func (m *Manager) usedByAnother(v *volume, pod types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range v.users {
		if p.pod != pod {
			return true
		}
	}
	return false
}

// checkMode returns an error if the driver does not support volumes of this mode (persistent or
// ephemeral).
func checkMode(d *storagev1.CSIDriver, name string, mode storagev1.VolumeLifecycleMode) error {
	if d == nil {
		if mode == storagev1.VolumeLifecyclePersistent {
			return nil
		}
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", mode, name)
	}
	modes := d.Spec.VolumeLifecycleModes
	if len(modes) == 0 {
		modes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	if slices.Contains(modes, mode) {
		return nil
	}
	return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, name, modes)
}

// mount writes the records of a volume, stages it if necessary and publishes it. The caller holds
// vol.asking.
func (m *Manager) mount(ctx context.Context, d *driver, vol *volume, r request, v Volume) (Mounted, error) {
	able, err := d.abilities(ctx)
	if err != nil {
		return Mounted{}, err
	}
	if err := m.begin(vol, r); err != nil {
		return Mounted{}, err
	}
	staging := ""
	if v.PV != nil && able.stages() {
		staging = m.stage(r.id, r.place).path
		if err := stageVolume(ctx, d, able, r, staging); err != nil {
			return Mounted{}, errors.Join(err, m.unstaged(vol, r.place, err))
		}
		m.note(vol, func() { vol.surely = true })
	}
	target := m.target(r.place)
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return Mounted{}, fmt.Errorf("volume's directory: %w", err)
	}
	req := &csi.NodePublishVolumeRequest{
		VolumeId: r.id.handle, PublishContext: r.publishContext, StagingTargetPath: staging, TargetPath: target,
		VolumeCapability: capability(r, able), Readonly: r.readOnly, Secrets: r.publishSecrets, VolumeContext: r.attributes,
	}
	if _, err := d.node.NodePublishVolume(ctx, req); err != nil {
		return Mounted{}, err
	}
	if r.place.block {
		return Mounted{Device: target}, nil
	}
	changeGroup := !able[csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP] && groupApplies(r, v.PV)
	return Mounted{Path: target, ChangeGroup: changeGroup, Labelled: r.context != ""}, nil
}

// begin writes the records of a volume to the disk. It must be called before the volume is staged
// or published, so that the next process can clean up if the kubelet is killed.
func (m *Manager) begin(vol *volume, r request) error {
	rec := record{
		Spec: r.place.spec, Handle: r.id.handle, Driver: r.id.driver, Node: m.cfg.NodeName,
		Attachment: AttachmentName(r.id.handle, r.id.driver, m.cfg.NodeName), Mode: string(r.mode), Context: r.context,
	}
	var staged *stage
	if r.mode == storagev1.VolumeLifecyclePersistent {
		s := m.stage(r.id, r.place)
		staged = &s
		if err := write(s.record, rec); err != nil {
			return err
		}
	}
	m.note(vol, func() { vol.staged, vol.context = staged, r.context })
	var err error
	if r.place.block {
		err = link(m.target(r.place), m.podDir(r.place))
	} else {
		err = write(filepath.Join(m.podDir(r.place), recordName), rec)
	}
	if err == nil {
		m.note(vol, func() { vol.users[r.place] = true })
	}
	return err
}

// unstaged drops the records of a volume that the driver has refused to stage, because there is
// nothing to unstage. It keeps the records if the driver may still be staging the volume in the
// background, if another pod uses the volume, or if the volume may have been staged before.
func (m *Manager) unstaged(vol *volume, p place, cause error) error {
	m.mu.Lock()
	staged, others := vol.staged, len(vol.users) > 1 || !vol.users[p]
	m.mu.Unlock()
	if !IsFinal(cause) || vol.surely || others || staged == nil {
		return nil
	}
	if err := m.forgetPod(p); err != nil {
		return err
	}
	m.note(vol, func() { delete(vol.users, p) })
	return m.forgetStage(vol, staged)
}

// IsFinal reports whether an error of a driver is final, so that the driver does not continue the
// call in the background.
func IsFinal(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// link creates the link in a pod's directory to the pod's block device.
func link(target, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("link to device: %w", err)
	}
	if err := os.Symlink(target, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link to device: %w", err)
	}
	return nil
}

func stageVolume(ctx context.Context, d *driver, able abilities, r request, path string) error {
	if err := os.MkdirAll(path, 0o750); err != nil {
		return fmt.Errorf("staging directory: %w", err)
	}
	_, err := d.node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: r.id.handle, PublishContext: r.publishContext, StagingTargetPath: path,
		VolumeCapability: capability(r, able), Secrets: r.stageSecrets, VolumeContext: stagedAttributes(r),
	})
	return err
}

// stagedAttributes returns the volume's attributes without those that contain data about one pod.
func stagedAttributes(r request) map[string]string {
	out := maps.Clone(r.attributes)
	maps.DeleteFunc(out, func(k, _ string) bool { return isPodAttribute(k) })
	return out
}

func capability(r request, able abilities) *csi.VolumeCapability {
	c := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{
			Mode: accessMode(r.access, able[csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER])}}
	if r.place.block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return c
	}
	mount := &csi.VolumeCapability_MountVolume{FsType: r.fsType, MountFlags: r.options}
	if r.group != nil && able[csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP] {
		mount.VolumeMountGroup = fmt.Sprint(*r.group)
	}
	c.AccessType = &csi.VolumeCapability_Mount{Mount: mount}
	return c
}

// accessMode converts an access mode to CSI's form. If precise is true, the result distinguishes
// whether one pod or several pods of the node write to the volume. Older drivers do not support
// this distinction.
func accessMode(mode v1.PersistentVolumeAccessMode, precise bool) csi.VolumeCapability_AccessMode_Mode {
	switch {
	case mode == v1.ReadOnlyMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == v1.ReadWriteMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case !precise && (mode == v1.ReadWriteOnce || mode == v1.ReadWriteOncePod):
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case mode == v1.ReadWriteOnce:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	case mode == v1.ReadWriteOncePod:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	}
	return csi.VolumeCapability_AccessMode_UNKNOWN
}

// groupApplies reports whether the kubelet must change the group of the volume's files to the pod's
// group.
func groupApplies(r request, pv *v1.PersistentVolume) bool {
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if r.object != nil && r.object.Spec.FSGroupPolicy != nil {
		policy = *r.object.Spec.FSGroupPolicy
	}
	switch {
	case r.group == nil || r.readOnly || policy == storagev1.NoneFSGroupPolicy:
		return false
	case policy == storagev1.FileFSGroupPolicy:
		return true
	case r.fsType == "":
		return false
	}
	return pv == nil || slices.ContainsFunc(pv.Spec.AccessModes, func(a v1.PersistentVolumeAccessMode) bool {
		return a == v1.ReadWriteOnce || a == v1.ReadWriteOncePod
	})
}
