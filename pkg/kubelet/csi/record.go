// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/checkpoint"
)

const (
	// pluginDir is the name of the directory that contains a pod's CSI volumes.
	pluginDir  = "kubernetes.io~csi"
	recordName = "vol_data.json"
	mountName  = "mount"
)

// record is what is stored on the disk about a volume. There is a record in the pod's directory and
// another one where the volume is staged.
type record struct {
	Spec       string `json:"specVolID,omitempty"`
	Handle     string `json:"volumeHandle"`
	Driver     string `json:"driverName"`
	Node       string `json:"nodeName,omitempty"`
	Attachment string `json:"attachmentID,omitempty"`
	Mode       string `json:"volumeLifecycleMode,omitempty"`
	Context    string `json:"seLinuxMountContext,omitempty"`
}

func (r record) id() id { return id{r.Driver, r.Handle} }

// id identifies a volume in the cluster, by the names of its driver and of the volume in the
// driver.
type id struct{ driver, handle string }

// String returns the volume's name in the form that the Node's status uses.
func (i id) String() string { return "kubernetes.io/csi/" + i.driver + "^" + i.handle }

// AttachmentName returns the name of the VolumeAttachment that attaches a volume to a node.
func AttachmentName(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// place identifies the use of a volume by a pod.
type place struct {
	pod   types.UID
	spec  string
	block bool
}

// target returns the path at which the driver publishes the volume for the pod: a mounted file
// system or a block device.
func (m *Manager) target(p place) string {
	if p.block {
		return filepath.Join(m.devicesDir(), "publish", p.spec, string(p.pod))
	}
	return filepath.Join(m.podDir(p), mountName)
}

// podDir returns the path in the pod's directory that belongs to the volume: a directory for a file
// system, or a link for a block device.
func (m *Manager) podDir(p place) string {
	kind := "volumes"
	if p.block {
		kind = "volumeDevices"
	}
	return filepath.Join(m.cfg.RootDir, "pods", string(p.pod), kind, pluginDir, p.spec)
}

func (m *Manager) devicesDir() string {
	return filepath.Join(m.cfg.RootDir, "plugins", "kubernetes.io", "csi", "volumeDevices")
}

// stage is the place where a volume is staged on the node. The directories in own are removed in
// their order.
type stage struct {
	path, record string
	own          [3]string
}

func (s stage) directories() []string {
	return slices.DeleteFunc(s.own[:], func(dir string) bool { return dir == "" })
}

func (m *Manager) stage(i id, p place) stage {
	if p.block {
		dir := filepath.Join(m.devicesDir(), p.spec)
		data := filepath.Join(dir, "data")
		return stage{filepath.Join(m.devicesDir(), "staging", p.spec), filepath.Join(data, recordName),
			[3]string{filepath.Join(m.devicesDir(), "publish", p.spec), data, dir}}
	}
	dir := filepath.Join(m.cfg.RootDir, "plugins", "kubernetes.io", "csi", i.driver,
		fmt.Sprintf("%x", sha256.Sum256([]byte(i.handle))))
	return stage{filepath.Join(dir, "globalmount"), filepath.Join(dir, recordName), [3]string{dir}}
}

// load reads the records that an earlier process wrote to the disk.
func (m *Manager) load() error {
	pods := filepath.Join(m.cfg.RootDir, "pods", "*")
	err := m.visitRecords(filepath.Join(pods, "volumes", pluginDir, "*", recordName), func(path string, r record) {
		dir := filepath.Dir(path)
		p := place{pod: types.UID(filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(dir))))), spec: filepath.Base(dir)}
		v := m.volume(r.id())
		v.users[p], v.inline = true, r.Mode == "Ephemeral"
	})
	if err != nil {
		return err
	}
	csiDir := filepath.Dir(m.devicesDir())
	err = m.visitRecords(filepath.Join(csiDir, "*", "*", recordName), func(_ string, r record) {
		s := m.stage(r.id(), place{})
		v := m.volume(r.id())
		v.staged, v.surely, v.context = &s, true, r.Context
	})
	if err != nil {
		return err
	}
	return m.visitRecords(filepath.Join(m.devicesDir(), "*", "data", recordName), func(path string, r record) {
		spec := filepath.Base(filepath.Dir(filepath.Dir(path)))
		v, s := m.volume(r.id()), m.stage(r.id(), place{spec: spec, block: true})
		v.staged, v.surely = &s, true
		// Glob returns an error only if the pattern is invalid, which it is not.
		links, _ := filepath.Glob(filepath.Join(pods, "volumeDevices", pluginDir, spec))
		for _, link := range links {
			uid := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(link))))
			v.users[place{pod: types.UID(uid), spec: spec, block: true}] = true
		}
	})
}

// visitRecords calls f with each record whose path matches the pattern.
func (m *Manager) visitRecords(pattern string, f func(path string, r record)) error {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return fmt.Errorf("records of CSI volumes: %w", err)
	}
	for _, path := range paths {
		var r record
		_, err := checkpoint.Read(path, &r)
		if err != nil || r.Driver == "" || r.Handle == "" {
			// Without its record, the volume cannot be cleaned up, so its directory stays on the
			// disk.
			m.cfg.Log.Error("Failed to read the record of a CSI volume", "path", path, "err", err)
			continue
		}
		f(path, r)
	}
	return nil
}

// write writes a record to the disk. It creates the record's directory if necessary.
func write(path string, r record) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("record of volume: %w", err)
	}
	if err := checkpoint.WriteDurably(path, r); err != nil {
		return fmt.Errorf("record of volume: %w", err)
	}
	return nil
}

// removeTarget removes the mount point or device file of a volume that is unpublished. It returns
// an error if something is still mounted there or if the directory is not empty.
func removeTarget(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	mounted, err := mountinfo.Mounted(path)
	if err != nil {
		return fmt.Errorf("look for mount: %w", err)
	}
	if mounted {
		return fmt.Errorf("%s is still mounted although the driver has unpublished it", path)
	}
	return remove(path)
}

// remove removes a file or an empty directory. It succeeds if neither exists.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what is left of a volume: %w", err)
	}
	return nil
}
