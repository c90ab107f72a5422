// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"keelson.dev/apiserver/leaktest"
	"keelson.dev/keelson/pkg/loopdev"
	"keelson.dev/keelson/test/unshare"
)

// patience is how long a test waits for a machine.
const patience = 2 * time.Minute

// ownerDir is an environment variable. If it is set, the test program is the owner of a lab that a
// test kills.
const ownerDir = "KEELSON_MACHINES_OWNER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerDir); dir != "" {
		if err := own(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	leaktest.Main(m)
}

func need(t *testing.T) {
	t.Helper()
	if os.Getenv("KEELSON_MACHINES") == "" {
		t.Skip("KEELSON_MACHINES is not set")
	}
	unshare.NeedRoot(t)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newLab makes a lab that is closed at the end of the test.
func newLab(t *testing.T, name, dir string) *Lab {
	t.Helper()
	l, err := New(within(t), options(t.Output(), name, dir))
	check(t, err)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func options(log io.Writer, name, dir string) Options {
	image, err := exec.Command("../../../hack/machines.sh").Output()
	if err != nil {
		panic(err)
	}
	return Options{Dir: dir, Name: name, Image: string(bytes.TrimSpace(image)),
		Log: slog.New(slog.NewTextHandler(log, nil))}
}

// boot boots machines at the same time.
func boot(t *testing.T, l *Lab, names ...string) []*Machine {
	t.Helper()
	ctx := within(t)
	machines, errs := make([]*Machine, len(names)), make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { machines[i], errs[i] = l.Boot(ctx, name) })
	}
	wg.Wait()
	for _, err := range errs {
		check(t, err)
	}
	return machines
}

// run runs a shell command in a machine and returns its output without the newline at the end.
func run(t *testing.T, m *Machine, script string) string {
	t.Helper()
	out, err := m.Run(within(t), "sh", "-ec", script)
	check(t, err)
	return strings.TrimSpace(string(out))
}

// reaches reports whether a machine gets an answer to a ping.
func reaches(t *testing.T, m *Machine, version, host string) bool {
	t.Helper()
	_, err := m.Run(within(t), "ping", version, "-c", "1", "-W", "1", host)
	return err == nil
}

// expectReach checks that two machines reach each other by name. The first packet may need longer than
// others, because the sender looks for the receiver's link address.
func expectReach(t *testing.T, a, b *Machine) {
	t.Helper()
	for _, pair := range [][2]*Machine{{a, b}, {b, a}} {
		for _, version := range []string{"-4", "-6"} {
			ok := reaches(t, pair[0], version, pair[1].Name())
			if !ok && !reaches(t, pair[0], version, pair[1].Name()) {
				t.Errorf("%s does not reach %s (ping %s)", pair[0].Name(), pair[1].Name(), version)
			}
		}
	}
}

func TestMachines(t *testing.T) {
	need(t)
	l := newLab(t, "machines", t.TempDir())
	machines := boot(t, l, "m1", "m2")
	a, b := machines[0], machines[1]

	t.Run("names", func(t *testing.T) {
		expectReach(t, a, b)
		if !reaches(t, a, "-4", desk) || !reaches(t, b, "-6", desk) {
			t.Error("the machines do not reach the desk")
		}
		if got := run(t, a, "hostname"); got != "m1" {
			t.Errorf("host name %q", got)
		}
		const ids = "cat /etc/machine-id /proc/sys/kernel/random/boot_id"
		if run(t, a, ids) == run(t, b, ids) {
			t.Error("both machines have the same machine ID or boot ID")
		}
	})
	t.Run("run", func(t *testing.T) { testRun(t, a) })
	t.Run("copy", func(t *testing.T) { testCopy(t, a) })
	t.Run("own kernel settings only", func(t *testing.T) { testSettings(t, a) })
	t.Run("cut", func(t *testing.T) { testCut(t, a, b) })
	t.Run("part", func(t *testing.T) { testPart(t, l, a, b) })
	t.Run("power", func(t *testing.T) { testPower(t, a, b) })
	t.Run("orderly shutdown", func(t *testing.T) { testShutdown(t, a, b) })
	t.Run("no way out", func(t *testing.T) { testNoWayOut(t, l, a, b) })
}

func testRun(t *testing.T, m *Machine) {
	_, err := m.Run(within(t), "sh", "-c", "echo reason >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "exit status 3: reason") {
		t.Errorf("error %v", err)
	}
	t.Setenv("OUTSIDE", "1")
	if env := run(t, m, "env"); strings.Contains(env, "OUTSIDE") {
		t.Errorf("the command has the environment of the test:\n%s", env)
	}
	groups := run(t, m, "grep -E 'memory|systemd' /proc/self/cgroup | cut -d: -f3 | xargs")
	if groups != "/init.scope /init.scope" {
		t.Errorf("cgroups %q", groups)
	}
	ctx, cancel := context.WithCancel(within(t))
	r, w, err := os.Pipe()
	check(t, err)
	defer r.Close()
	go func() {
		_, _ = r.Read(make([]byte, 1)) // wait until the command runs
		cancel()
	}()
	cmd := m.lab.command(ctx, m.name, m.inside("sh", "-c", "echo; sleep 1000")...)
	cmd.Stdout = w
	if err := cmd.Run(); err == nil {
		t.Error("no error of a command that was ended")
	}
	w.Close()
	if got := run(t, m, "pgrep -x sleep || true"); got != "" {
		t.Errorf("the command still runs: %s", got)
	}
}

func testCopy(t *testing.T, m *Machine) {
	dir := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	check(t, os.WriteFile(filepath.Join(dir, "sub", "program"), []byte("#!/bin/sh\necho ran"), 0o755))
	check(t, os.Symlink("sub/program", filepath.Join(dir, "link")))
	check(t, m.CopyIn(dir, "/opt/copy/dir"))
	if got := run(t, m, "/opt/copy/dir/link"); got != "ran" {
		t.Errorf("output %q", got)
	}
	check(t, m.CopyIn(filepath.Join(dir, "sub", "program"), "/var/lib/program"))
	got, err := m.Read("/var/lib/program")
	if err != nil || !strings.Contains(string(got), "echo ran") {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := m.Read("/missing"); err == nil {
		t.Error("no error for a missing file")
	}
	if err := m.CopyIn(filepath.Join(dir, "missing"), "/opt/missing"); err == nil {
		t.Error("no error for a missing source")
	}
}

// testSettings checks that a machine can write the settings of its network, but not those of the whole
// kernel. It writes values that the settings already have.
func testSettings(t *testing.T, m *Machine) {
	run(t, m, "cd /proc/sys/net/ipv4; value=$(cat ip_forward); echo $value >ip_forward")
	for _, file := range []string{"/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic",
		"/proc/sys/net/netfilter/nf_conntrack_max", "/sys/kernel/mm/transparent_hugepage/enabled"} {
		if _, err := m.Run(within(t), "sh", "-ec", "value=$(cat "+file+"); echo $value >"+file); err == nil {
			t.Errorf("%s can be written", file)
		}
	}
	run(t, m, "test ! -e /dev/kmsg; test -z \"$(ls -A /sys/kernel/debug)\"; test ! -w /proc/sysrq-trigger")
	for _, process := range []string{"1", "self"} {
		var have uint64
		_, err := fmt.Sscanf(run(t, m, "grep CapBnd /proc/"+process+"/status"), "CapBnd: %x", &have)
		check(t, err)
		if have&(1<<unix.CAP_SYS_TIME|1<<unix.CAP_SYS_MODULE|1<<unix.CAP_SYSLOG) != 0 || have&(1<<unix.CAP_NET_ADMIN) == 0 {
			t.Errorf("capabilities of process %s: %x", process, have)
		}
	}
	// A unit with limits has a cgroup with these limits.
	const unit = "systemd-run --quiet --wait --pipe --property=MemoryMax=64M --property=Delegate=yes sh -c "
	if got := run(t, m, unit+`'cat /sys/fs/cgroup/memory$(grep :memory: /proc/self/cgroup | cut -d: -f3)/`+
		`memory.limit_in_bytes'`); got != "67108864" {
		t.Errorf("limit of a unit's memory: %q", got)
	}
}

// testCut sends pings from a to b, and finds out from b's counter where they were dropped.
func testCut(t *testing.T, a, b *Machine) {
	for _, pair := range [][2]*Machine{{a, b}, {b, a}} { // so that no machine asks for a link address
		mac := run(t, pair[1], "cat /sys/class/net/eth0/address")
		run(t, pair[0], fmt.Sprintf("ip neighbour replace %s lladdr %s dev eth0 nud permanent", pair[1].Address(), mac))
	}
	for name, c := range map[string]struct {
		direction        Direction
		toPeer, fromPeer bool // whether packets of a arrive at b, and packets of b at a
	}{
		"in":   {In, true, false},
		"out":  {Out, false, true},
		"both": {Both, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, a.Cut(c.direction))
			atB, atA := pings(t, b), pings(t, a)
			if reaches(t, a, "-4", b.Address().String()) || reaches(t, b, "-4", a.Address().String()) {
				t.Error("a ping over a cut link is answered")
			}
			if got := pings(t, b) > atB; got != c.toPeer {
				t.Errorf("pings arrive at the peer: %v", got)
			}
			if got := pings(t, a) > atA; got != c.fromPeer {
				t.Errorf("pings arrive at the machine: %v", got)
			}
			if !reaches(t, b, "-4", desk) {
				t.Error("the peer does not reach the desk")
			}
			check(t, a.Heal())
			expectReach(t, a, b)
		})
	}
}

// testPart checks that machines in different groups do not reach each other, and all others do.
func testPart(t *testing.T, l *Lab, a, b *Machine) {
	check(t, l.Part([]*Machine{a}, []*Machine{b}))
	if reaches(t, a, "-4", b.Address().String()) || reaches(t, b, "-6", a.Address6().String()) {
		t.Error("a machine reaches one of another group")
	}
	if !reaches(t, a, "-4", desk) || !reaches(t, b, "-4", desk) {
		t.Error("a machine does not reach the desk")
	}
	check(t, l.Part([]*Machine{a, b}, nil))
	expectReach(t, a, b)
}

// pings returns the number of pings that a machine has received.
func pings(t *testing.T, m *Machine) int {
	t.Helper()
	n := 0
	const script = `awk '/^Icmp:/ { if (col) print $col; for (i = 1; i <= NF; i++) if ($i == "InEchos") col = i }' ` +
		`/proc/net/snmp`
	_, err := fmt.Sscan(run(t, m, script), &n)
	check(t, err)
	return n
}

func testPower(t *testing.T, a, b *Machine) {
	run(t, a, "echo kept | tee /var/lib/kept /etc/kept >/run/lost; sync /var/lib/kept /etc/kept")
	run(t, a, "ip address add 10.60.0.99/32 dev lo")
	attachLoop(t, a)
	id, boot := run(t, a, "cat /etc/machine-id"), run(t, a, "cat /proc/sys/kernel/random/boot_id")
	check(t, a.PowerOff())
	if reaches(t, b, "-4", a.Name()) {
		t.Error("a machine that is off answers")
	}
	if _, err := a.Run(within(t), "true"); err == nil {
		t.Error("a machine that is off runs commands")
	}
	if d, err := loopdev.DeviceOf(a.dir + loopFile); d != "" || err != nil {
		t.Errorf("a loop device has survived a power failure: %s, %v", d, err)
	}
	check(t, a.PowerOn(within(t)))
	run(t, a, "test ! -e /run/lost; cmp /var/lib/kept /etc/kept; grep kept /etc/kept")
	if got := run(t, a, "ip -o address show dev lo"); strings.Contains(got, "10.60.0.99") {
		t.Error("an address has survived a power failure")
	}
	if run(t, a, "cat /etc/machine-id") != id || run(t, a, "cat /proc/sys/kernel/random/boot_id") == boot {
		t.Error("the machine ID has changed, or the boot ID has not")
	}
	expectReach(t, a, b)
}

// loopFile is a file to which attachLoop attaches a loop device.
const loopFile = "/var/lib/disk.img"

// attachLoop attaches a loop device to a file of a machine, with a file system.
func attachLoop(t *testing.T, m *Machine) {
	t.Helper()
	// Another process may take the free device first.
	run(t, m, "truncate -s 16M "+loopFile+`; mkfs.ext4 -q `+loopFile+`
		for i in 1 2 3 4 5; do
			dev=$(losetup -f)
			[ -e $dev ] || mknod -m 600 $dev b 7 ${dev#/dev/loop}
			! losetup $dev `+loopFile+` || break
		done
		mount $dev /mnt; echo kept >/mnt/kept; sync /mnt/kept`)
	if d, err := loopdev.DeviceOf(m.dir + loopFile); d == "" || err != nil {
		t.Fatalf("the loop device is not found: %v", err)
	}
}

func testShutdown(t *testing.T, a, b *Machine) {
	run(t, a, "systemd-run --quiet --property='ExecStop=touch /var/lib/stopped' sleep 1000")
	check(t, a.Shutdown(within(t)))
	check(t, a.PowerOn(within(t)))
	run(t, a, "test -e /var/lib/stopped")
	expectReach(t, a, b)

	// A machine that reboots by itself is off until the test turns it on.
	_, _ = a.Run(within(t), "systemctl", "reboot") // may be killed by the reboot
	select {
	case <-a.ended:
	case <-within(t).Done():
		t.Fatal("the machine does not reboot")
	}
	if _, err := a.Run(within(t), "true"); err == nil {
		t.Error("a machine that is off runs commands")
	}
	check(t, a.PowerOn(within(t)))
	expectReach(t, a, b)
}

// testNoWayOut checks that the desk and the machines have only the lab's routes and links, and that
// packets to other addresses are dropped. The only such address to which it sends a packet is one of
// the other machine.
func testNoWayOut(t *testing.T, l *Lab, a, b *Machine) {
	before, err := l.Strays(within(t))
	check(t, err)
	if before != 0 {
		t.Errorf("%d packets were sent to addresses outside the lab", before)
	}
	for _, family := range []string{"-4", "-6"} {
		out, err := l.Run(within(t), "ip", family, "route", "show", "table", "all")
		check(t, err)
		for line := range strings.Lines(string(out)) {
			inside := strings.Contains(line, "dev machine") || strings.Contains(line, "dev lo")
			if strings.HasPrefix(line, "default") || !inside {
				t.Errorf("route of the desk: %s", line)
			}
		}
	}
	out, err := l.Run(within(t), "ip", "-o", "link", "show")
	check(t, err)
	if got := strings.Count(string(out), "\n"); got != 4 { // lo, the bridge, and one link for each machine
		t.Errorf("links of the desk:\n%s", out)
	}
	for _, m := range []*Machine{a, b} {
		got := run(t, m, "ip -o link show | wc -l; ip route show default; ip -6 route show default")
		if !strings.HasPrefix(got, "2\ndefault via 10.60.0.1 dev eth0") || strings.Count(got, "\n") != 2 {
			t.Errorf("links and default routes of %s:\n%s", m.Name(), got)
		}
	}
	run(t, b, "ip address add 10.61.0.1/32 dev lo")
	if reaches(t, a, "-4", "10.61.0.1") {
		t.Error("the desk forwards packets")
	}
	after, err := l.Strays(within(t))
	check(t, err)
	if after == before {
		t.Error("a packet to an address outside the lab was not counted")
	}
}
