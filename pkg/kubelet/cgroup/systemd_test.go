// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/kubelet/cgroup"
	"keelson.dev/keelson/pkg/kubelet/qos"
)

// fakeSystemd answers D-Bus calls as systemd does. It stores the properties of slices, and creates
// ordinary directories in place of cgroups.
type fakeSystemd struct {
	t      *testing.T
	socket string
	mounts []string // directories in place of the hierarchies of the supported controllers

	mu      sync.Mutex
	units   map[string]map[string]string // properties as text, by names of unit and property
	conns   []net.Conn
	jobs    int
	refuses string // name of the unit whose jobs fail
	dials   int
}

func newFakeSystemd(t *testing.T, mounts ...string) *fakeSystemd {
	t.Helper()
	dir, err := os.MkdirTemp("", "k") // short, because the path of a socket has a maximum length
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSystemd{t: t, socket: filepath.Join(dir, "bus"), mounts: mounts, units: map[string]map[string]string{}}
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, c)
			f.mu.Unlock()
			wg.Go(func() { f.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		f.hangUp()
		wg.Wait()
		_ = os.RemoveAll(dir)
	})
	return f
}

// hangUp closes the connections of all clients.
func (f *fakeSystemd) hangUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

// slices returns Slices that are connected to this fakeSystemd.
func (f *fakeSystemd) slices() *cgroup.Slices {
	s := cgroup.NewSlices(func() (*systemd.Conn, error) {
		f.mu.Lock()
		f.dials++
		f.mu.Unlock()
		return systemd.NewConnection(func() (*dbus.Conn, error) {
			conn, err := dbus.Dial("unix:path=" + f.socket)
			if err != nil {
				return nil, err
			}
			return conn, conn.Auth([]dbus.Auth{dbus.AuthAnonymous()})
		})
	})
	f.t.Cleanup(s.Close)
	return s
}

// serve handles a D-Bus connection: the authentication, then calls and their replies.
func (f *fakeSystemd) serve(c net.Conn) {
	in := bufio.NewReader(c)
	if _, err := in.ReadByte(); err != nil { // at first, a client sends one byte with its credentials
		return
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		answer := "ERROR\r\n"
		switch word, _, _ := strings.Cut(strings.TrimSpace(line), " "); word {
		case "AUTH":
			if answer = "REJECTED ANONYMOUS\r\n"; strings.Contains(line, "ANONYMOUS") {
				answer = "OK 0123456789abcdef0123456789abcdef\r\n"
			}
		case "BEGIN":
			f.answer(in, c)
			return
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

func (f *fakeSystemd) answer(in io.Reader, c net.Conn) {
	for {
		call, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		member, _ := call.Headers[dbus.FieldMember].Value().(string)
		f.mu.Lock()
		body, bad := f.call(member, call.Body)
		if len(body) == 2 { // a call that starts a job returns the job and its unit
			f.removed(body[0].(dbus.ObjectPath), body[1].(string))
			body = body[:1]
		}
		reply := &dbus.Message{Type: dbus.TypeMethodReply,
			Headers: map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(call.Serial())}, Body: body}
		if bad != "" {
			reply.Type, reply.Body = dbus.TypeError, []any{bad}
			reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.systemd1." + bad)
		}
		f.send(c, reply)
		f.mu.Unlock()
	}
}

func (f *fakeSystemd) send(c net.Conn, m *dbus.Message) {
	if len(m.Body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(m.Body...))
	}
	_ = m.EncodeTo(c, binary.LittleEndian) // a client that has disconnected gets no reply
}

// removed sends all clients the signal that a job has ended.
func (f *fakeSystemd) removed(job dbus.ObjectPath, name string) {
	result := "done"
	if name == f.refuses {
		result = "failed"
	}
	for _, c := range f.conns {
		f.send(c, &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/systemd1")),
			dbus.FieldInterface: dbus.MakeVariant("org.freedesktop.systemd1.Manager"),
			dbus.FieldMember:    dbus.MakeVariant("JobRemoved"),
		}, Body: []any{uint32(f.jobs), job, name, result}})
	}
}

// call executes a method call. If it fails, bad is the name of systemd's error.
func (f *fakeSystemd) call(member string, args []any) (body []any, bad string) {
	name := ""
	if len(args) > 0 {
		name, _ = args[0].(string)
	}
	job := func() []any {
		f.jobs++
		return []any{dbus.ObjectPath(fmt.Sprint("/org/freedesktop/systemd1/job/", f.jobs)), name}
	}
	switch member {
	case "StartTransientUnit":
		if f.units[name] != nil {
			return nil, "UnitExists"
		}
		if name != f.refuses {
			f.units[name] = map[string]string{}
			f.note(name, args[2])
			f.realize(name)
		}
		return job(), ""
	case "SetUnitProperties":
		if f.units[name] == nil {
			return nil, "NoSuchUnit"
		}
		f.note(name, args[2])
		return nil, ""
	case "StopUnit":
		if f.units[name] == nil {
			return nil, "NoSuchUnit"
		}
		delete(f.units, name)
		return job(), ""
	}
	return nil, "" // other calls, such as ResetFailedUnit and AddMatch, do nothing
}

// note stores properties of a unit. list has the D-Bus type a(sv).
func (f *fakeSystemd) note(name string, list any) {
	for _, p := range list.([][]any) {
		f.units[name][p[0].(string)] = fmt.Sprint(p[1].(dbus.Variant).Value())
	}
}

// realize creates the directories of a slice, inside the directories of its parent slices.
func (f *fakeSystemd) realize(name string) {
	parts := strings.Split(strings.TrimSuffix(name, ".slice"), "-")
	path := ""
	for i := range parts {
		path = filepath.Join(path, strings.Join(parts[:i+1], "-")+".slice")
	}
	for _, m := range f.mounts {
		if err := os.MkdirAll(filepath.Join(m, path), 0o700); err != nil {
			f.t.Error(err)
		}
	}
}

// limits returns the properties of a unit as text, without those that every slice has.
func (f *fakeSystemd) limits(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.units[name] == nil {
		return "no such unit"
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(f.units[name])) {
		if !slices.Contains([]string{"Description", "DefaultDependencies", "MemoryAccounting", "CPUAccounting",
			"TasksAccounting"}, key) {
			out = append(out, key+"="+f.units[name][key])
		}
	}
	return strings.Join(out, " ")
}

// TestSlices checks that, with the systemd driver, systemd creates the slices with the limits that
// it supports, and that all limits are also written to the files.
func TestSlices(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		unified     bool
		controllers []string // the controllers that systemd supports, and one more that it does not support
		pods, shares, best, pod, wide,
		reserved string
		files map[string]string
	}{
		"v1": {
			false, []string{"cpu", "memory", "pids", "systemd", "hugetlb"},
			"CPUShares=1536 MemoryLimit=3221225472 TasksMax=1000", "CPUShares=512 Wants=[kubepods.slice]",
			"CPUShares=2 Wants=[kubepods.slice]",
			"CPUQuotaPerSecUSec=340000 CPUShares=340 MemoryLimit=67108864 TasksMax=100 Wants=[kubepods.slice]",
			"CPUQuotaPerSecUSec=500000 CPUShares=512 MemoryLimit=134217728 TasksMax=100 Wants=[kubepods.slice]",
			"CPUShares=512 MemoryLimit=1073741824",
			map[string]string{
				"cpu/kubepods.slice/cpu.shares": "1536", "pids/kubepods.slice/pids.max": "1000",
				"hugetlb/kubepods.slice/hugetlb.2MB.limit_in_bytes":                       "4194304",
				"cpu/kubepods.slice/kubepods-besteffort.slice/cpu.shares":                 "2",
				"cpu/kubepods.slice/kubepods-burstable.slice/cpu.shares":                  "512",
				"cpu/kubepods.slice/kubepods-poda_b.slice/cpu.cfs_quota_us":               "33300",
				"memory/kubepods.slice/kubepods-poda_b.slice/memory.limit_in_bytes":       "67108864",
				"hugetlb/kubepods.slice/kubepods-poda_b.slice/hugetlb.2MB.limit_in_bytes": "0",
				"memory/system.slice/memory.limit_in_bytes":                               "1073741824",
			},
		},
		"v2": {
			true, []string{""},
			"CPUWeight=59 MemoryLow=0 MemoryMax=3221225472 MemoryMin=0 TasksMax=1000",
			"CPUWeight=20 MemoryLow=0 Wants=[kubepods.slice]",
			"CPUWeight=1 Wants=[kubepods.slice]",
			"CPUQuotaPerSecUSec=340000 CPUWeight=13 MemoryMax=67108864 TasksMax=100 Wants=[kubepods.slice]",
			"CPUQuotaPerSecUSec=500000 CPUWeight=20 MemoryMax=134217728 TasksMax=100 Wants=[kubepods.slice]",
			"CPUWeight=20 MemoryMax=1073741824",
			map[string]string{
				"kubepods.slice/cpu.weight": "59", "kubepods.slice/memory.max": "3221225472",
				"kubepods.slice/hugetlb.2MB.max":                     "4194304",
				"kubepods.slice/kubepods-burstable.slice/cpu.weight": "20",
				"kubepods.slice/kubepods-poda_b.slice/cpu.max":       "33300 100000",
				"kubepods.slice/kubepods-poda_b.slice/memory.max":    "67108864", "system.slice/memory.max": "1073741824",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			var mounts []string
			for _, controller := range c.controllers {
				dir := filepath.Join(mount, controller)
				if err := os.MkdirAll(filepath.Join(dir, "system.slice"), 0o700); err != nil {
					t.Fatal(err)
				}
				if controller != "hugetlb" {
					mounts = append(mounts, dir)
				}
			}
			if c.unified {
				if err := os.WriteFile(filepath.Join(mount, "cgroup.controllers"), []byte("cpu memory"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			f := newFakeSystemd(t, mounts...)
			f.units["system.slice"] = map[string]string{}
			m, err := cgroup.New(cgroup.Config{
				Mount: mount, Root: "/", PidsPerPod: 100,
				Node: qos.Node{Memory: 1 << 30, CFSQuota: true, Period: 100 * time.Millisecond,
					Unified: c.unified, HugePages: []int64{2 << 20}},
				Pods: &qos.PodLimits{Shares: number(1536), Memory: number(3 << 30), Pids: 1000,
					HugePages: map[string]int64{"2MB": 4 << 20}},
				Others: map[string]qos.PodLimits{"/system.slice": {Shares: number(512), Memory: number(1 << 30)}},
			})
			if err != nil {
				t.Fatal(err)
			}
			m.Use(f.slices())
			expect := func(unit, want string) {
				t.Helper()
				if got := f.limits(unit); got != want {
					t.Errorf("%s has %s, want %s", unit, got, want)
				}
			}
			small, large := podOf("333m", "64Mi"), podOf("500m", "128Mi")
			for range 2 { // the second time, the slices already exist
				if err := errors.Join(m.Setup(), m.Share([]*v1.Pod{burstable("500m", "1Gi")}), m.Ensure(small)); err != nil {
					t.Fatal(err)
				}
			}
			expect("kubepods.slice", c.pods)
			expect("kubepods-burstable.slice", c.shares)
			expect("kubepods-besteffort.slice", c.best)
			expect("kubepods-poda_b.slice", c.pod)
			expect("system.slice", c.reserved)
			for file, want := range c.files {
				if got := content(t, mount, file); got != want {
					t.Errorf("%s: %s, want %s", file, got, want)
				}
			}
			if got := m.Parent(small); got != "/kubepods-poda_b.slice" {
				t.Errorf("parent cgroup %s", got)
			}
			if got := m.Pods(); len(got) != 1 || got[0] != "a-b" {
				t.Errorf("pods %v", got)
			}
			f.hangUp() // closes all connections, as a restart of systemd does
			if err := m.Widen(small, large); err != nil {
				t.Fatal(err)
			}
			expect("kubepods-poda_b.slice", c.wide)
			best := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
			f.mu.Lock()
			f.refuses = "kubepods-besteffort-podu.slice"
			f.mu.Unlock()
			if err := m.Ensure(best); err == nil ||
				!strings.Contains(err.Error(), "start kubepods-besteffort-podu.slice: the job is failed") {
				t.Errorf("systemd fails: %v", err)
			}
			// Remove the files, because ordinary files in a directory block its removal.
			err = filepath.WalkDir(mount, func(path string, d fs.DirEntry, err error) error {
				if err == nil && strings.Contains(path, "poda_b") && d.Type().IsRegular() {
					return os.Remove(path)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := m.Remove(t.Context(), "a-b"); err != nil {
					t.Fatal(err)
				}
			}
			expect("kubepods-poda_b.slice", "no such unit")
			if left, err := filepath.Glob(filepath.Join(mount, "*", "*pod*", "*poda_b*")); err != nil || len(left) != 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}
