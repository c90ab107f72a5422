// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"keelson.dev/keelson/pkg/features"
	"keelson.dev/keelson/pkg/provision"
)

// checkEmulated returns an error if the control plane cannot emulate the release. An empty version
// means that it emulates none.
func checkEmulated(version string) error {
	if known := features.Emulatable(); version != "" && !slices.Contains(known, version) {
		return fmt.Errorf("emulated version: want %s, have %s", strings.Join(known, " or "), version)
	}
	return nil
}

// emulating returns the command of a process with the flag --emulated-version set to version, or
// without this flag if version is empty.
func emulating(argv []string, version string) []string {
	out := slices.DeleteFunc(slices.Clone(argv), func(arg string) bool {
		return strings.HasPrefix(arg, provision.EmulatedVersionFlag)
	})
	if version != "" {
		out = append(out, provision.EmulatedVersionFlag+version)
	}
	return out
}

// emulates reports whether the process with process ID pid emulates version. An empty version means
// that it emulates none.
func emulates(pid int, version string) (bool, error) {
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if errors.Is(err, os.ErrNotExist) {
		return true, nil // the process has ended; its keeper starts it with the present flags
	}
	if err != nil {
		return false, err
	}
	have := ""
	for arg := range strings.SplitSeq(string(command), "\x00") {
		if v, ok := strings.CutPrefix(arg, provision.EmulatedVersionFlag); ok {
			have = v
		}
	}
	return have == version, nil
}

// hasEmulation reports whether a process has the flag for the release that it emulates. name is a
// process name as in [Status].
func hasEmulation(name string) bool {
	return slices.Contains([]string{apiserver, controllerManager, scheduler}, programOf(name))
}

// emulate changes the release that the control plane emulates. The change takes effect at the next
// start of each process.
func (s *supervisor) emulate(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.EmulatedVersion = version
	for name, k := range s.control {
		if hasEmulation(name) {
			k.setCommand(emulating(k.command(), version))
		}
	}
}

var errOldSupervisor = errors.New("the cluster's supervisor runs an older version of ctl, which cannot change the " +
	"emulated version: end the supervisor's process, and start the cluster with ctl cluster up --emulated-version")

// setEmulated records the release that the control plane of a running cluster emulates, so that its
// processes emulate it when they start the next time. d has the paths of the cluster's files.
func setEmulated(ctx context.Context, c *Config, d dirs, st *Status, version string) error {
	if version == c.EmulatedVersion && version == st.Config.EmulatedVersion {
		return nil
	}
	if !st.Emulates {
		return fmt.Errorf("process %d: %w", st.Supervisor, errOldSupervisor)
	}
	err := call(ctx, d.socket(), "POST", "/control/emulate", url.Values{"version": {version}}, nil)
	if err != nil {
		return fmt.Errorf("emulated version: %w", err)
	}
	c.EmulatedVersion = version
	return errors.Join(writeJSON(d.config(), c), writeJSON(d.record(), c))
}
