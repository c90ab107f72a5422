// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"keelson.dev/keelson/pkg/loopdev"
)

//go:embed init.sh
var initScript []byte

// initProgram is the path of initScript in a machine.
const initProgram = "/usr/local/lib/lab-init"

// Machine is a Debian machine in a Lab.
type Machine struct {
	lab    *Lab
	name   string
	number int // last part of its addresses
	dir    string

	process *exec.Cmd     // runs systemd-nspawn; nil if the machine is off
	ended   chan struct{} // closed when process has ended
	pid     int           // of the machine's systemd
}

// Boot makes a machine with a new disk and turns it on. Its name is also its host name.
func (l *Lab) Boot(ctx context.Context, name string) (*Machine, error) {
	m, err := l.add(name)
	if err != nil {
		return nil, err
	}
	if err := m.makeDisk(ctx); err != nil {
		return nil, fmt.Errorf("disk of %s: %w", name, err)
	}
	return m, m.PowerOn(ctx)
}

// add chooses the addresses of a new machine.
func (l *Lab) add(name string) (*Machine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !validName.MatchString(name) || name == desk ||
		slices.ContainsFunc(l.machines, func(m *Machine) bool { return m.name == name }) {
		return nil, fmt.Errorf("machine: invalid or used name %q", name)
	}
	m := &Machine{lab: l, name: name, number: 11 + len(l.machines), dir: filepath.Join(l.dir, "machines", name)}
	l.machines = append(l.machines, m)
	return m, l.writeHosts()
}

// makeDisk makes a machine's disk: a layer over the image, and a copy of the image's /var. The copy is
// not a layer, because the container runtime makes layers in /var, and the kernel does not allow
// layers of layers.
func (m *Machine) makeDisk(ctx context.Context) error {
	upper := filepath.Join(m.dir, "upper")
	for _, dir := range []string{"etc/lab", filepath.Dir(initProgram)} {
		if err := os.MkdirAll(filepath.Join(upper, dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"work", "root"} {
		if err := os.Mkdir(filepath.Join(m.dir, dir), 0o755); err != nil {
			return err
		}
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	for file, data := range map[string][]byte{
		"etc/hostname":   []byte(m.name + "\n"),
		"etc/machine-id": []byte(hex.EncodeToString(id[:]) + "\n"),
		initProgram:      initScript,
	} {
		if err := os.WriteFile(filepath.Join(upper, file), data, 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("lab/hosts", filepath.Join(upper, "etc/hosts")); err != nil {
		return err
	}
	if _, err := m.lab.Run(ctx, "cp", "-a", filepath.Join(m.lab.image, "var"), filepath.Join(m.dir, "var")); err != nil {
		return err
	}
	_, err := m.lab.Run(ctx, "mount", "-t", "overlay", "-o", fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s",
		m.lab.image, upper, filepath.Join(m.dir, "work")), "overlay", filepath.Join(m.dir, "root"))
	return err
}

// Name returns the machine's name.
func (m *Machine) Name() string { return m.name }

// Address returns the machine's IPv4 address.
func (m *Machine) Address() netip.Addr { return netip.AddrFrom4([4]byte{10, 60, 0, byte(m.number)}) }

// Address6 returns the machine's IPv6 address. Its decimal digits are those of the IPv4 address.
func (m *Machine) Address6() netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("fd60::%d", m.number))
}

// PowerOn boots the machine from its disk, and waits until all its units have started. It returns an
// error with the names of units that failed; the machine is on then. A machine that reboots by itself
// is off until PowerOn is called.
func (m *Machine) PowerOn(ctx context.Context) error {
	if m.on() {
		return fmt.Errorf("machine %s is on", m.name)
	}
	if err := m.clean(); err != nil { // the machine may have turned itself off
		return fmt.Errorf("machine %s: %w", m.name, err)
	}
	start := time.Now()
	if err := m.start(ctx); err != nil {
		return fmt.Errorf("machine %s: %w", m.name, err)
	}
	if err := m.waitRunning(ctx); err != nil {
		return fmt.Errorf("machine %s: %w", m.name, err)
	}
	m.lab.log.Info("Machine booted", "machine", m.name, "duration", time.Since(start))
	return nil
}

// unavailable are the capabilities that a machine does not have, because they concern the clock, the
// kernel's modules, its log and the audit system, which belong to all machines.
var unavailable = []string{"sys_time", "sys_module", "syslog", "audit_control", "audit_read"}

func (m *Machine) start(ctx context.Context) error {
	if err := m.lab.createGroup(m.group()); err != nil {
		return err
	}
	if err := m.connect(ctx); err != nil {
		return err
	}
	console, err := os.OpenFile(m.console(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer console.Close()
	m.process = m.lab.command(context.WithoutCancel(ctx), m.name, m.lab.atDesk(
		// The machine's /sys belongs to the network namespace in which systemd-nspawn runs. A machine has
		// no filter of system calls, because a real one has none.
		"nsenter", "--net=/run/netns/"+m.name, "env", "SYSTEMD_SECCOMP=0",
		"systemd-nspawn", "--quiet", "--directory="+filepath.Join(m.dir, "root"), "--hostname="+m.name,
		"--register=no", "--keep-unit", "--capability=all",
		"--drop-capability=CAP_"+strings.ToUpper(strings.Join(unavailable, ",CAP_")), "--resolv-conf=off",
		"--timezone=off", "--link-journal=no", "--console=read-only",
		"--bind="+filepath.Join(m.dir, "var")+":/var", "--bind-ro="+filepath.Join(m.lab.dir, "etc")+":/etc/lab",
		initProgram)...)
	m.process.Stdout, m.process.Stderr = console, console
	if err := m.process.Start(); err != nil {
		m.process = nil
		return err
	}
	process, ended := m.process, make(chan struct{})
	m.ended = ended
	go func() {
		_ = process.Wait() // the status says nothing about how the machine ended
		close(ended)
	}()
	return nil
}

func (m *Machine) group() string { return filepath.Join(m.lab.name, m.name) }

func (m *Machine) console() string { return filepath.Join(m.dir, "console.log") }

// waitRunning waits until the machine's systemd has started all units.
func (m *Machine) waitRunning(ctx context.Context) error {
	for {
		if m.pid = m.findInit(); m.pid != 0 {
			// The command fails in all states but "running".
			out, _ := m.Run(ctx, "systemctl", "is-system-running", "--wait")
			switch strings.TrimSpace(string(out)) {
			case "running":
				return nil
			case "degraded":
				out, err := m.Run(ctx, "systemctl", "list-units", "--failed", "--plain", "--no-legend")
				return errors.Join(fmt.Errorf("failed units:\n%s", out), err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the boot: %w\n%s", ctx.Err(), m.endOfConsole())
		case <-m.ended:
			return fmt.Errorf("ended while it booted\n%s", m.endOfConsole())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// endOfConsole returns what the machine wrote last to its console.
func (m *Machine) endOfConsole() string {
	b, _ := os.ReadFile(m.console())
	return string(b[max(len(b)-2000, 0):])
}

// findInit returns the process ID of the machine's systemd, or 0 if it does not run yet.
func (m *Machine) findInit() int {
	for _, nspawn := range children(m.process.Process.Pid) {
		for _, pid := range children(nspawn) {
			// The IDs of a process are those in this PID namespace, the desk's and the machine's.
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			_, ids, _ := strings.Cut(string(status), "\nNSpid:")
			ids, _, _ = strings.Cut(ids, "\n")
			if f := strings.Fields(ids); len(f) == 3 && f[2] == "1" && bytes.HasPrefix(status, []byte("Name:\tsystemd\n")) {
				return pid
			}
		}
	}
	return 0
}

// children returns the process IDs of the children of a process that has one thread.
func children(pid int) []int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	var out []int
	for f := range strings.FieldsSeq(string(b)) {
		var child int
		if _, err := fmt.Sscan(f, &child); err == nil {
			out = append(out, child)
		}
	}
	return out
}

// on reports whether the machine is on.
func (m *Machine) on() bool {
	if m.process == nil {
		return false
	}
	select {
	case <-m.ended:
		return false
	default:
		return true
	}
}

// PowerOff kills all processes of the machine at once, as a power failure does. What it has written to
// its disk remains, even if it has not been synced, because the kernel still has it in memory.
func (m *Machine) PowerOff() error {
	if !m.on() {
		return fmt.Errorf("machine %s is off", m.name)
	}
	m.lab.thaw(m.group())
	// The end of the machine's first process ends all others. The machine may not have one yet.
	if m.pid != 0 {
		_ = syscall.Kill(m.pid, syscall.SIGKILL)
	}
	return m.clean()
}

// Shutdown turns the machine off as an administrator does: with "systemctl poweroff", so that programs
// that have asked logind to delay the shutdown can finish their work. If ctx ends before, the machine
// is still on.
func (m *Machine) Shutdown(ctx context.Context) error {
	if _, err := m.Run(ctx, "systemctl", "poweroff"); err != nil && m.on() {
		return err
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("shut down %s: %w\n%s", m.name, ctx.Err(), m.endOfConsole())
	case <-m.ended:
		return m.clean()
	}
}

// clean removes the processes, cgroups, network namespace and loop devices of a machine that has ended
// or is about to end. A machine that boots again starts without them, as a real one does.
func (m *Machine) clean() error {
	if m.process == nil {
		return nil
	}
	err := m.lab.removeGroup(m.group())
	m.wait()
	return errors.Join(err, m.disconnect(), loopdev.DetachBelow(filepath.Join(m.dir, "var")))
}

// wait waits until the machine's processes have ended.
func (m *Machine) wait() {
	if m.process != nil {
		<-m.ended
		m.process, m.pid = nil, 0
	}
}

// Run runs a command in the machine as root, without a terminal. It returns the command's standard
// output. An error contains its standard error.
func (m *Machine) Run(ctx context.Context, argv ...string) ([]byte, error) {
	return m.RunInput(ctx, nil, argv...)
}

// RunInput is like Run. The command reads its standard input from stdin.
func (m *Machine) RunInput(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) {
	if !m.on() || m.pid == 0 {
		return nil, fmt.Errorf("%s: machine %s is off", strings.Join(argv, " "), m.name)
	}
	cmd := m.lab.command(ctx, m.name, m.inside(argv...)...)
	cmd.Stdin = stdin
	return output(cmd, argv)
}

// inside returns the arguments of a command that runs argv in the machine. It has the capabilities of
// the machine's systemd.
func (m *Machine) inside(argv ...string) []string {
	return append([]string{"nsenter", "--target", fmt.Sprint(m.pid), "--mount", "--uts", "--ipc", "--net", "--pid",
		"--cgroup", "--root", "--wdns=/", "--", "setpriv", "--bounding-set=-" + strings.Join(unavailable, ",-"), "--"},
		argv...)
}

// Read returns the content of a file of the machine.
func (m *Machine) Read(path string) ([]byte, error) {
	return m.Run(context.Background(), "cat", "--", path)
}

// CopyIn copies a file, or a directory and everything in it, from this machine into the machine. The
// path "to" is that of the copy. Its parent directories are created. The copy belongs to root.
func (m *Machine) CopyIn(from, to string) error {
	ctx := context.Background()
	if _, err := m.Run(ctx, "mkdir", "-p", filepath.Dir(to)); err != nil {
		return err
	}
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := pack(w, from, strings.TrimPrefix(filepath.Clean(to), "/"))
		sent <- err
		w.CloseWithError(err)
	}()
	_, err := m.RunInput(ctx, r, "tar", "-x", "--no-same-owner", "--keep-directory-symlink",
		"-C", "/")
	r.Close() // ends pack if tar has failed
	if err := errors.Join(<-sent, err); err != nil {
		return fmt.Errorf("copy %s to %s: %w", from, m.name, err)
	}
	return nil
}

// pack writes an archive of a file or directory. In the archive, it has the path name.
func pack(w io.Writer, from, name string) error {
	t := tar.NewWriter(w)
	err := filepath.WalkDir(from, func(file string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&os.ModeSymlink != 0 {
			if link, err = os.Readlink(file); err != nil {
				return err
			}
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		h.Name = filepath.Join(name, rel)
		if err := t.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(t, f)
		return err
	})
	return errors.Join(err, t.Close())
}
