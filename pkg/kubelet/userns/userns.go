// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package userns assigns ranges of user and group IDs to pods with hostUsers: false. The ranges of
// two pods do not overlap, so that root in a pod has no rights outside the pod.
//
// The first range, number 0, contains the machine's own IDs and is never assigned. The number of the
// other ranges is the maximum number of pods on the node. A pod's range is stored in a file in the
// pod's directory and survives a restart of the kubelet, because files and processes use its IDs.
// The search for a free range starts at a hash of the pod's UID, so that pods of different nodes
// rarely have the same range, since they may share files.
package userns

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/checkpoint"
)

// DefaultLength is how many user and group IDs a pod gets by default.
const DefaultLength = 65536

// maxIDs is the number of user IDs of a machine. The largest 32-bit value is not an ID; it means
// "no ID".
const maxIDs = 1<<32 - 1

const fileName = "userns"

// Manager assigns ranges of user and group IDs to pods. It is safe for concurrent use.
type Manager struct {
	dir    string // directory that contains a directory for each pod
	length uint32
	most   uint32

	mu   sync.Mutex
	pods map[types.UID]uint32 // number of the range of each pod, starting at 1
	used map[uint32]bool
}

// mapping is a range of user and group IDs in the form in which the file contains it.
type mapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

type mappings struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

// New returns a Manager for the pods below dir, and reads their ranges from the files. Each pod
// gets idsPerPod IDs. The argument most is the maximum number of pods that have a range.
func New(dir string, idsPerPod int64, most int) (*Manager, error) {
	if idsPerPod <= 0 || idsPerPod > maxIDs || idsPerPod%DefaultLength != 0 {
		return nil, fmt.Errorf("length %d of user namespaces is not a multiple of %d", idsPerPod, DefaultLength)
	}
	length := uint32(idsPerPod)
	m := &Manager{dir: dir, length: length, most: uint32(max(most, 0)), pods: map[types.UID]uint32{},
		used: map[uint32]bool{}}
	if last := (uint64(m.most) + 1) * uint64(length); last > maxIDs {
		// IDs above maxIDs would wrap around to 0, so the last range would contain the machine's
		// own IDs.
		return nil, fmt.Errorf("%d user namespaces of %d IDs are more than the machine has", most, length)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("user namespaces: %w", err)
	}
	for _, e := range entries {
		if err := m.load(types.UID(e.Name())); err != nil {
			return nil, fmt.Errorf("user namespace of pod %s: %w", e.Name(), err)
		}
	}
	return m, nil
}

func (m *Manager) file(uid types.UID) string { return filepath.Join(m.dir, string(uid), fileName) }

func (m *Manager) load(uid types.UID) error {
	have := mappings{}
	if found, err := checkpoint.Read(m.file(uid), &have); err != nil || !found {
		return err
	}
	if len(have.UIDs) != 1 || len(have.GIDs) != 1 || have.UIDs[0] != have.GIDs[0] {
		return errors.New("users and groups do not have the same single range")
	}
	r := have.UIDs[0]
	number := r.HostID / m.length
	if r.ContainerID != 0 || r.Length != m.length || r.HostID%m.length != 0 || number == 0 || m.used[number] {
		return fmt.Errorf("invalid range of %d IDs from %d", r.Length, r.HostID)
	}
	m.pods[uid], m.used[number] = number, true
	return nil
}

// Get returns the pod's user namespace. It assigns a range if the pod has none.
func (m *Manager) Get(uid types.UID) (*runtimeapi.UserNamespace, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	number, ok := m.pods[uid]
	if !ok {
		if number = m.find(uid); number == 0 {
			return nil, errors.New("could not find an empty slot to allocate a user namespace")
		}
		if err := m.write(uid, number); err != nil {
			return nil, fmt.Errorf("create user namespace: %w", err)
		}
		m.pods[uid], m.used[number] = number, true
	}
	ids := func() []*runtimeapi.IDMapping {
		return []*runtimeapi.IDMapping{{HostId: number * m.length, ContainerId: 0, Length: m.length}}
	}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids(), Gids: ids()}, nil
}

// find returns the number of a free range. The search starts at a number that depends on the pod's
// UID. It returns 0 if no range is free.
func (m *Manager) find(uid types.UID) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid)) // writing to a hash never fails
	for i := range m.most {
		if number := 1 + (h.Sum32()%m.most+i)%m.most; !m.used[number] {
			return number
		}
	}
	return 0
}

func (m *Manager) write(uid types.UID, number uint32) error {
	r := []mapping{{HostID: number * m.length, Length: m.length}}
	if err := os.MkdirAll(filepath.Dir(m.file(uid)), 0o750); err != nil {
		return err
	}
	return checkpoint.WriteDurably(m.file(uid), mappings{r, r})
}

// Free frees the range of IDs of a pod whose containers have all ended.
func (m *Manager) Free(uid types.UID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	number, ok := m.pods[uid]
	if !ok {
		return nil
	}
	if err := os.Remove(m.file(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("user namespace: %w", err)
	}
	delete(m.pods, uid)
	delete(m.used, number)
	return nil
}

// Pods returns the pods that have a range of IDs.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []types.UID
	for uid := range m.pods {
		out = append(out, uid)
	}
	return out
}
