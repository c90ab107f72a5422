// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
)

// unitDir is the directory of the systemd units, relative to this package.
const unitDir = "../../deploy/systemd"

// unitFile has the settings of a unit, by section and name, such as Service.Restart. A setting that
// occurs several times has several values.
type unitFile map[string][]string

func readUnit(t *testing.T, name string) unitFile {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(unitDir, name))
	if err != nil {
		t.Fatal(err)
	}
	options, err := unit.DeserializeOptions(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	out := unitFile{}
	for _, o := range options {
		key := o.Section + "." + o.Name
		out[key] = append(out[key], o.Value)
	}
	return out
}

// want checks that a setting has exactly the given values.
func (u unitFile) want(t *testing.T, key string, values ...string) {
	t.Helper()
	if !slices.Equal(u[key], values) {
		t.Errorf("%s=%q, want %q", key, u[key], values)
	}
}

// program is a program of a machine, with what is special about its unit.
type program struct {
	path  string // below /usr/lib/keelson/current
	kind  string // Service.Type
	after []string
	// strict is true if the unit has all restrictions. Then it has only these capabilities.
	strict       bool
	capabilities string
	// visible has the only files that the program sees in directories that are hidden from programs with
	// all restrictions.
	visible []string
}

// programs returns the programs by the names of their units, without the prefix keelson-.
func programs() map[string]program {
	// The file /etc/resolv.conf may be a link to one of these.
	names := []string{"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager"}
	return map[string]program{
		"etcd": {path: "tools/etcd", kind: "notify", strict: true,
			visible: []string{"/run/systemd/notify", "/var/lib/etcd"}},
		"apiserver": {path: "bin/apiserver", kind: "exec", after: []string{"etcd"}, strict: true,
			visible: append(names, "/var/lib/etcd")},
		"controller-manager": {path: "bin/controller-manager", kind: "exec", after: []string{"agent", "apiserver"},
			strict: true, visible: names},
		"scheduler": {path: "bin/scheduler", kind: "exec", after: []string{"agent", "apiserver"}, strict: true,
			visible: names},
		"agent": {path: "bin/ctl", kind: "exec", strict: true, visible: []string{"/run/systemd"}},
		"proxy": {path: "bin/proxy", kind: "exec", after: []string{"agent"}, strict: true,
			capabilities: "CAP_NET_ADMIN CAP_NET_RAW", visible: []string{"/var/lib/kube-proxy"}},
		"kubelet":    {path: "bin/kubelet", kind: "exec", after: []string{"agent", "containerd"}},
		"containerd": {path: "tools/containerd", kind: "notify"},
	}
}

// TestUnits checks what all units have in common: each is started with arguments from a file, and is
// restarted for ever.
func TestUnits(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(unitDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(programs())+5 { // the slice, the switcher, what joins again, and the units of backups
		t.Errorf("files %q", files)
	}
	for name, p := range programs() {
		t.Run(name, func(t *testing.T) {
			u := readUnit(t, "keelson-"+name+".service")
			arguments := "/etc/keelson/" + name + ".env"
			u.want(t, "Unit.ConditionPathExists", arguments)
			u.want(t, "Unit.StartLimitIntervalSec", "0")
			u.want(t, "Service.EnvironmentFile", arguments)
			u.want(t, "Service.ExecStart", "/usr/lib/keelson/current/"+p.path+" $ARGS")
			u.want(t, "Service.Type", p.kind)
			u.want(t, "Service.Restart", "always")
			u.want(t, "Service.RestartSec", "1")
			u.want(t, "Service.Slice", "keelson.slice")
			u.want(t, "Install.WantedBy", "multi-user.target")
			for _, other := range p.after {
				if !slices.Contains(strings.Fields(strings.Join(u["Unit.After"], " ")), "keelson-"+other+".service") {
					t.Errorf("After=%q, want keelson-%s.service", u["Unit.After"], other)
				}
			}
			for _, key := range []string{"Unit.Requires", "Unit.BindsTo", "Unit.PartOf", "Service.StandardOutput",
				"Service.StandardError", "Service.MemoryMax"} {
				u.want(t, key) // a program does not end with another one, and all log to the journal
			}
			for key, values := range u {
				for _, word := range []string{"token", "password", "secret"} {
					if strings.Contains(strings.ToLower(strings.Join(values, " ")), word) {
						t.Errorf("%s=%q: may contain a secret", key, values)
					}
				}
			}
		})
	}
}

// TestRestrictions checks the restrictions of programs that run no containers.
func TestRestrictions(t *testing.T) {
	for name, p := range programs() {
		if !p.strict {
			continue
		}
		t.Run(name, func(t *testing.T) {
			u := readUnit(t, "keelson-"+name+".service")
			for key, value := range map[string]string{
				"UMask": "0077", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes",
				"PrivateDevices": "yes", "ProtectControlGroups": "yes", "ProtectKernelModules": "yes",
				"ProtectKernelLogs": "yes", "ProtectClock": "yes", "ProtectHostname": "yes", "ProtectProc": "invisible",
				"RestrictNamespaces": "yes", "RestrictRealtime": "yes", "RestrictSUIDSGID": "yes", "LockPersonality": "yes",
				"MemoryDenyWriteExecute": "yes", "KeyringMode": "private", "SystemCallArchitectures": "native",
				"SystemCallErrorNumber": "EPERM", "CapabilityBoundingSet": p.capabilities,
			} {
				u.want(t, "Service."+key, value)
			}
			if name != "proxy" { // it changes settings of the network
				u.want(t, "Service.ProtectKernelTunables", "yes")
			}
			if f := u["Service.SystemCallFilter"]; len(f) < 2 || f[0] != "@system-service" || f[1] != "~@privileged @resources" {
				t.Errorf("SystemCallFilter=%q", f)
			}
			if len(u["Service.RestrictAddressFamilies"]) != 1 {
				t.Errorf("RestrictAddressFamilies=%q", u["Service.RestrictAddressFamilies"])
			}
			// The program is root, and could start processes with all rights through sockets in /run. What does
			// not exist yet when the program starts must be hidden too.
			hidden := "/run /var/lib:ro"
			if name == "agent" { // it renews the certificates of all programs
				hidden = "/run"
			}
			u.want(t, "Service.TemporaryFileSystem", hidden)
			visible := strings.Fields(strings.Join(append(u["Service.BindPaths"], u["Service.BindReadOnlyPaths"]...), " "))
			for _, path := range visible {
				if !slices.Contains(p.visible, strings.TrimPrefix(path, "-")) {
					t.Errorf("%s is visible, want only %q", path, p.visible)
				}
			}
		})
	}
}

// TestStoredSockets checks that systemd keeps the sockets of the agent while it is restarted, and does not end the
// program by which the agent asks whether it is.
func TestStoredSockets(t *testing.T) {
	u := readUnit(t, "keelson-agent.service")
	u.want(t, "Service.FileDescriptorStoreMax", "20001")
	u.want(t, "Service.NotifyAccess", "main")
	u.want(t, "Service.KillMode", "mixed")
}

// TestSwitchUnit checks what makes a switch to another release end: the switcher is a program of the old
// release, starts after all programs, and again at each boot and after each failure while the switch is
// not done.
func TestSwitchUnit(t *testing.T) {
	u := readUnit(t, "keelson-switch.service")
	const link = "/usr/lib/keelson/switching"
	u.want(t, "Unit.ConditionPathExists", link)
	u.want(t, "Unit.StartLimitIntervalSec", "0")
	u.want(t, "Service.ExecStart", link+"/bin/ctl switch-release")
	u.want(t, "Service.Restart", "on-failure")
	u.want(t, "Install.WantedBy", "multi-user.target")
	// Otherwise it would see the other programs end when the machine shuts down.
	after := strings.Fields(strings.Join(u["Unit.After"], " "))
	for name := range programs() {
		if !slices.Contains(after, "keelson-"+name+".service") {
			t.Errorf("After=%q, want keelson-%s.service", after, name)
		}
	}
	for key, value := range map[string]string{"CapabilityBoundingSet": "CAP_SYS_PTRACE", "NoNewPrivileges": "yes",
		"ProtectSystem": "strict", "ReadWritePaths": "/usr/lib/keelson", "TemporaryFileSystem": "/run",
		"BindReadOnlyPaths": "/run/systemd -/run/containerd"} {
		u.want(t, "Service."+key, value)
	}
}

// TestRejoinUnit checks that what joins a restored cluster goes on after each failure. It may change the flags of
// programs and the data of etcd, and nothing else.
func TestRejoinUnit(t *testing.T) {
	u := readUnit(t, "keelson-rejoin.service")
	u.want(t, "Unit.ConditionPathExists", "/var/lib/keelson/rejoin.json")
	u.want(t, "Unit.StartLimitIntervalSec", "0")
	u.want(t, "Service.ExecStart", "/usr/lib/keelson/current/bin/ctl rejoin")
	u.want(t, "Service.Restart", "on-failure")
	u.want(t, "Install.WantedBy") // only the agent starts it
	for key, value := range map[string]string{"CapabilityBoundingSet": "", "NoNewPrivileges": "yes",
		"ProtectSystem": "strict", "ReadWritePaths": "/etc/keelson", "StateDirectory": "keelson etcd",
		"TemporaryFileSystem": "/run", "BindReadOnlyPaths": "/run/systemd"} {
		u.want(t, "Service."+key, value)
	}
}

// TestContainersAreNotRestricted checks that units whose settings containers would inherit, or whose
// mounts containers must see, have no such settings.
func TestContainersAreNotRestricted(t *testing.T) {
	mounts := []string{"ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts", "ReadWritePaths",
		"ReadOnlyPaths", "InaccessiblePaths", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs",
		"ProtectControlGroups", "ProtectProc", "ProtectClock", "ProtectHostname", "RestrictSUIDSGID", "RestrictNamespaces"}
	inherited := []string{"NoNewPrivileges", "CapabilityBoundingSet", "SystemCallFilter", "SystemCallArchitectures",
		"RestrictAddressFamilies", "RestrictRealtime", "LockPersonality", "MemoryDenyWriteExecute", "LimitNOFILE"}
	for name, settings := range map[string][]string{"kubelet": mounts, "containerd": append(inherited, mounts...)} {
		u := readUnit(t, "keelson-"+name+".service")
		for _, key := range settings {
			u.want(t, "Service."+key)
		}
		u.want(t, "Service.KillMode", "process")
	}
	readUnit(t, "keelson-containerd.service").want(t, "Service.Delegate", "yes")
}

// TestBackupUnits checks the units of scheduled backups. The service may write everywhere except in
// directories of the system, because the operator chooses the directory.
func TestBackupUnits(t *testing.T) {
	const arguments = "/etc/keelson/backup.env"
	timer := readUnit(t, "keelson-backup.timer")
	timer.want(t, "Unit.ConditionPathExists", arguments)
	timer.want(t, "Timer.OnCalendar", "*:0/10") // pkg/machine checks that the interval is at least this long
	timer.want(t, "Install.WantedBy", "timers.target")
	u := readUnit(t, "keelson-backup.service")
	for key, value := range map[string]string{
		"Unit.ConditionPathExists": arguments, "Service.Type": "oneshot",
		"Service.ExecStart": "/usr/lib/keelson/current/bin/ctl $ARGS", "Service.Slice": "keelson.slice",
		"Service.UMask": "0077", "Service.NoNewPrivileges": "yes", "Service.ProtectSystem": "full",
		"Service.CapabilityBoundingSet": "CAP_DAC_OVERRIDE", "Service.TemporaryFileSystem": "/run",
	} {
		u.want(t, key, value)
	}
	u.want(t, "Service.EnvironmentFile", arguments, "-/etc/keelson/backup-s3.env")
	// The host name of a bucket's server needs /etc/resolv.conf, which may be a link to one of these.
	u.want(t, "Service.BindReadOnlyPaths",
		"-/run/systemd/resolve/stub-resolv.conf -/run/systemd/resolve/resolv.conf",
		"-/run/NetworkManager/resolv.conf -/run/resolvconf/resolv.conf")
	u.want(t, "Install.WantedBy") // only the timer starts it
}
