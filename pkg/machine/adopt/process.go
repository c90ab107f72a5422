// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Processes finds the processes of kubeadm's static pods. It knows them by their cgroup, whose name has the ID of the
// pod, so that other processes with the same command line do not count. The names of the directories with the logs of
// pods have these IDs, also while no API server runs.
type Processes struct {
	// Proc is the directory with all processes of the system, and Logs the kubelet's with the logs of pods.
	Proc, Logs string
	// Node is the name of the node.
	Node string
}

// ErrNoProcess is the error of Check.
var ErrNoProcess = errors.New("the kubelet runs no process of this static pod, whose end \"ctl adopt\" must notice: " +
	"it looks for one in a cgroup with the ID of the pod, whose logs are in a directory below")

// Check returns an error if a component has no process. Its end could not be noticed then.
func (p Processes) Check() error {
	var errs []error
	for _, c := range components() {
		switch found, err := p.Find(c); {
		case err != nil:
			errs = append(errs, err)
		case len(found) == 0:
			errs = append(errs, fmt.Errorf("%s: %w %s", c, ErrNoProcess, p.Logs))
		}
	}
	return errors.Join(errs...)
}

// Find returns the IDs of the processes of a component.
func (p Processes) Find(component string) ([]int, error) {
	pods, err := p.pods(component)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(p.Proc)
	if err != nil {
		return nil, fmt.Errorf("processes: %w", err)
	}
	var out []int
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil && p.belongs(id, component, pods) {
			out = append(out, id)
		}
	}
	return out, nil
}

// Kill kills the processes of a component.
func (p Processes) Kill(component string) error {
	found, err := p.Find(component)
	if err != nil {
		return err
	}
	pods, err := p.pods(component)
	if err != nil {
		return err
	}
	for _, id := range found {
		// Once it is open, the descriptor does not refer to a later process with the same ID.
		fd, err := unix.PidfdOpen(id, 0)
		if err != nil {
			continue // it has ended
		}
		if p.belongs(id, component, pods) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // fails if it has ended
		}
		if err := unix.Close(fd); err != nil {
			return fmt.Errorf("process %d: %w", id, err)
		}
	}
	return nil
}

// pods returns the IDs of a component's pods: that of the present one, and those of earlier ones.
func (p Processes) pods(component string) ([]string, error) {
	// NAMESPACE_NAME_ID
	dirs, err := filepath.Glob(filepath.Join(p.Logs, "kube-system_"+component+"-"+p.Node+"_*"))
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	for i, dir := range dirs {
		dirs[i] = dir[strings.LastIndexByte(dir, '_')+1:]
	}
	return dirs, nil
}

// belongs reports whether a process runs the program of a component in the cgroup of one of the pods. The container
// that the runtime adds to each pod runs another program.
func (p Processes) belongs(id int, component string, pods []string) bool {
	dir := filepath.Join(p.Proc, strconv.Itoa(id))
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return false // it has ended
	}
	program, _, _ := strings.Cut(string(line), "\x00")
	if filepath.Base(program) != component {
		return false
	}
	groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	return err == nil && slices.ContainsFunc(pods, func(pod string) bool {
		// systemd's driver for cgroups replaces the dashes.
		return strings.Contains(string(groups), "pod"+pod) ||
			strings.Contains(string(groups), "pod"+strings.ReplaceAll(pod, "-", "_"))
	})
}
