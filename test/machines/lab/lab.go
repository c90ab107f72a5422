// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"keelson.dev/keelson/pkg/loopdev"
)

//go:embed desk.sh
var deskScript string

// desk is the cgroup of the processes at a lab's desk, and its name in the machines' /etc/hosts.
const desk = "desk"

// Options are the settings of a Lab.
type Options struct {
	// Dir is the directory of the machines' disks. Its file system must be one that can be the upper
	// layer of an overlay, such as ext4. The lab uses only the directory Name in it.
	Dir string
	// Name is the lab's name, in lower-case letters, digits and hyphens. Labs that exist at the same
	// time have different names.
	Name string
	// Image is the directory that hack/machines.sh prints.
	Image string
	// Log is where the lab logs what it does with machines. If nil, it logs nothing.
	Log *slog.Logger
}

// Lab is a network without a way out, and the machines on it.
type Lab struct {
	name, dir, image string
	log              *slog.Logger
	hierarchies      []string     // mount points of the cgroup hierarchies
	lock             net.Listener // its address is taken while a lab of this name exists

	process *exec.Cmd      // whose child is the first process of the desk's PID namespace
	input   io.WriteCloser // standard input of the first process, which ends when this is closed
	pid     int            // of the first process

	mu       sync.Mutex
	machines []*Machine // in the order of their creation
}

var validName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$`)

// New makes a lab without machines. First it removes what is left of a lab of the same name whose
// process was killed. It returns an error if a lab of this name exists.
func New(ctx context.Context, o Options) (*Lab, error) {
	if !validName.MatchString(o.Name) {
		return nil, fmt.Errorf("lab: invalid name %q", o.Name)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Lab{name: o.Name, image: o.Image, log: o.Log.With("lab", o.Name)}
	var err error
	if l.dir, err = filepath.Abs(filepath.Join(o.Dir, o.Name)); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	if l.hierarchies, err = hierarchies(); err != nil {
		return nil, err
	}
	// The kernel frees an abstract address as soon as this process ends.
	if l.lock, err = (&net.ListenConfig{}).Listen(ctx, "unix", "@keelson-machines/"+o.Name); err != nil {
		return nil, fmt.Errorf("lab %s exists: %w", o.Name, err)
	}
	if err := l.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("lab %s: %w", o.Name, err), l.Close())
	}
	return l, nil
}

func (l *Lab) open(ctx context.Context) error {
	if err := l.remove(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(l.dir, "etc"), 0o755); err != nil {
		return err
	}
	if err := l.createGroup(filepath.Join(l.name, desk)); err != nil {
		return err
	}
	if err := l.writeHosts(); err != nil {
		return err
	}
	return l.startDesk(ctx)
}

// startDesk starts the process that keeps the desk's namespaces, and waits until they are set up.
func (l *Lab) startDesk(ctx context.Context) error {
	l.process = l.command(context.WithoutCancel(ctx), desk, "unshare", "--net", "--mount", "--pid", "--uts", "--ipc",
		"--fork", "--kill-child", "--mount-proc", "--", "/bin/sh", "-c", deskScript)
	var stderr bytes.Buffer
	l.process.Stderr = &stderr
	stdout, err := l.process.StdoutPipe()
	if err != nil {
		return err
	}
	if l.input, err = l.process.StdinPipe(); err != nil {
		return err
	}
	if err := l.process.Start(); err != nil {
		l.process = nil
		return err
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		_ = l.input.Close()
		_ = l.process.Wait() // so that stderr is complete
		l.process = nil
		return fmt.Errorf("set up network: %s", strings.TrimSpace(stderr.String()))
	}
	pids := children(l.process.Process.Pid)
	if len(pids) != 1 {
		return fmt.Errorf("set up network: found processes %v instead of one", pids)
	}
	l.pid = pids[0]
	return nil
}

// command returns a command that runs in one of the lab's cgroups. The command is the leader of a
// session without a terminal. When ctx ends, all processes of the session's first group are killed.
func (l *Lab) command(ctx context.Context, group string, argv ...string) *exec.Cmd {
	const enter = `for file in $0; do echo 0 >"$file" || exit; done; exec "$@"`
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", enter, l.entrances(filepath.Join(l.name, group))},
		argv...)...)
	cmd.Env = []string{"PATH=" + path, "HOME=/root", "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a daemon that the command started may keep the output open
	return cmd
}

// path is the environment variable PATH of commands at the desk and in machines.
const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// atDesk returns the arguments of a command that runs argv at the desk.
func (l *Lab) atDesk(argv ...string) []string {
	return append([]string{"nsenter", "--target", fmt.Sprint(l.pid), "--net", "--mount", "--pid", "--uts", "--ipc",
		"--wd=/", "--"}, argv...)
}

// Run runs a command at the desk: as root, with the programs of this machine and the network of the
// lab. It returns the command's standard output. An error contains its standard error.
func (l *Lab) Run(ctx context.Context, argv ...string) ([]byte, error) {
	return output(l.command(ctx, desk, l.atDesk(argv...)...), argv)
}

// output runs a command for which a caller gave the arguments argv.
func output(cmd *exec.Cmd, argv []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return stdout.Bytes(), fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// Strays returns the number of packets that machines or the desk sent to addresses outside the lab.
// The lab has dropped these packets.
func (l *Lab) Strays(ctx context.Context) (int, error) {
	out, err := l.Run(ctx, "nft", "list", "counter", "inet", "out", "strays")
	if err != nil {
		return 0, err
	}
	_, count, _ := strings.Cut(string(out), "packets ")
	n := 0
	if _, err := fmt.Sscan(count, &n); err != nil {
		return 0, fmt.Errorf("counter of packets: %w", err)
	}
	return n, nil
}

// writeHosts writes the file that is /etc/hosts in all machines. It replaces the file, so that no
// machine reads a part of it.
func (l *Lab) writeHosts() error {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	fmt.Fprintf(&b, "10.60.0.1 %s\nfd60::1 %s\n", desk, desk)
	for _, m := range l.machines {
		fmt.Fprintf(&b, "%s %s\n%s %s\n", m.Address(), m.name, m.Address6(), m.name)
	}
	file := filepath.Join(l.dir, "etc", "hosts")
	if err := os.WriteFile(file+".new", []byte(b.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// Close turns off all machines and removes everything that belongs to the lab, except the image.
func (l *Lab) Close() error {
	l.mu.Lock()
	machines := slices.Clone(l.machines)
	l.mu.Unlock()
	if l.process != nil {
		l.thaw(l.name)
		_ = l.input.Close()
		_ = l.process.Wait() // the kernel reports the end when all processes of the namespace have ended
	}
	for _, m := range machines {
		m.wait()
	}
	err := l.remove()
	return errors.Join(err, l.lock.Close())
}

// remove removes the processes, cgroups, loop devices and directories of a lab that are left.
func (l *Lab) remove() error {
	err := l.removeGroup(l.name)
	for _, mount := range l.hierarchies {
		_ = os.Remove(filepath.Join(mount, cgroupRoot)) // unless another lab exists
	}
	if err := loopdev.DetachBelow(l.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // the devices cannot be found any more when the files are gone
	}
	return errors.Join(err, os.RemoveAll(l.dir))
}
