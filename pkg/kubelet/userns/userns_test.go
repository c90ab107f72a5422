// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package userns_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"pgregory.net/rapid"

	"keelson.dev/keelson/pkg/kubelet/userns"
)

// TestRanges checks with random operations and restarts that no two pods share an ID, that no pod
// has an ID of the machine itself, and that each pod keeps its range.
func TestRanges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		const most = 3
		has := map[types.UID]uint32{}
		m, err := userns.New(dir, userns.DefaultLength, most)
		if err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			uid := types.UID(fmt.Sprint("p", rapid.IntRange(0, 4).Draw(rt, "pod")))
			switch rapid.SampledFrom([]string{"get", "get", "free", "restart"}).Draw(rt, "step") {
			case "get":
				ns, err := m.Get(uid)
				if _, ok := has[uid]; !ok && len(has) == most {
					if err == nil {
						rt.Fatal("more ranges than there are")
					}
					continue
				}
				if err != nil {
					rt.Fatal(err)
				}
				from := ns.Uids[0].HostId
				if from < userns.DefaultLength || from%userns.DefaultLength != 0 || ns.Gids[0].HostId != from ||
					ns.Uids[0].Length != userns.DefaultLength {
					rt.Fatalf("namespace %v", ns)
				}
				for other, at := range has {
					if (other == uid) != (at == from) {
						rt.Fatalf("%s has %d, %s has %d", uid, from, other, at)
					}
				}
				has[uid] = from
			case "free":
				if err := m.Free(uid); err != nil {
					rt.Fatal(err)
				}
				delete(has, uid)
			case "restart":
				if m, err = userns.New(dir, userns.DefaultLength, most); err != nil {
					rt.Fatal(err)
				}
			}
			if len(m.Pods()) != len(has) {
				rt.Fatalf("pods %v, want %v", m.Pods(), has)
			}
		}
	})
}

// TestNodesDiffer checks that the first pods of different nodes usually get different ranges.
func TestNodesDiffer(t *testing.T) {
	const nodes, most = 100, 110
	seen := map[uint32]bool{}
	for range nodes {
		m, err := userns.New(t.TempDir(), userns.DefaultLength, most)
		if err != nil {
			t.Fatal(err)
		}
		ns, err := m.Get(uuid.NewUUID())
		if err != nil {
			t.Fatal(err)
		}
		seen[ns.Uids[0].HostId] = true
	}
	if len(seen) < nodes/3 {
		t.Errorf("the first pods of %d nodes have %d ranges", nodes, len(seen))
	}
}

func TestInvalidFiles(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON": "{",
		"range of the machine": `{"uidMappings":[{"hostId":0,"containerId":0,"length":65536}],` +
			`"gidMappings":[{"hostId":0,"containerId":0,"length":65536}]}`,
		"differing": `{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],` +
			`"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}`,
		"another length": `{"uidMappings":[{"hostId":65536,"containerId":0,"length":1}],` +
			`"gidMappings":[{"hostId":65536,"containerId":0,"length":1}]}`,
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "p"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "p", "userns"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := userns.New(dir, userns.DefaultLength, 10); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := userns.New(t.TempDir(), 1000, 10); err == nil {
		t.Error("a length of 1000 was accepted")
	}
}

// TestRangesEndWithTheIDs checks that no range extends beyond maxIDs. Such a range would wrap
// around to 0, so that root of a pod would be root of the node.
func TestRangesEndWithTheIDs(t *testing.T) {
	const length, most = 1 << 26, 110
	m, err := userns.New(t.TempDir(), length, most)
	if err != nil {
		return // New rejects a configuration whose last range would be too high
	}
	for i := range most {
		u, err := m.Get(types.UID(strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		if first := u.GetUids()[0].GetHostId(); first < length {
			t.Fatalf("pod %d has the IDs from %d", i, first)
		}
	}
}
