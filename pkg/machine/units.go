// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/provision"
)

// Names of a machine's programs. The unit of a program is keelson-NAME.service.
const (
	etcd       = "etcd"
	containerd = "containerd"
	kubelet    = "kubelet"
	proxy      = "proxy"
	agentName  = "agent"
)

// programs returns all programs that a machine can run, in the order in which they are stopped.
func programs() []string {
	return []string{kubelet, proxy, provision.Scheduler, provision.ControllerManager, provision.APIServer, etcd,
		agentName, containerd}
}

func unit(program string) string { return "keelson-" + program + ".service" }

func argsFile(program string) string { return filepath.Join(ownConfig, program+".env") }

// writeArgs writes the flags of a program for its unit.
func writeArgs(program string, args []string) error {
	content, err := argsContent(program, args)
	if err != nil {
		return err
	}
	return atomicfile.WriteDurably(argsFile(program), content, 0o600)
}

// argsContent returns the content of the file with a program's flags. The unit splits them at spaces.
func argsContent(program string, args []string) ([]byte, error) {
	for _, a := range args {
		if strings.ContainsAny(a, " \t\n\"'\\$") {
			return nil, fmt.Errorf("flag %q of %s: %w", a, program, errCharacter)
		}
	}
	return []byte(`ARGS="` + strings.Join(args, " ") + "\"\n"), nil
}

var errCharacter = errors.New("spaces, quotes, backslashes and dollar signs are not supported")

// linkUnits makes the units of the current release known to systemd.
func linkUnits(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(current, "systemd", "*"))
	if err != nil {
		return fmt.Errorf("units: %w", err)
	}
	if len(files) == 0 {
		return fmt.Errorf("%s: %w", current, errNoRelease)
	}
	return systemctl(ctx, append([]string{"link"}, files...)...)
}

var errNoRelease = errors.New("no release, or one without systemd units")

// startUnits starts programs, now and at each boot. Programs that run already are restarted, because
// their flags may have changed.
func startUnits(ctx context.Context, programs ...string) error {
	for _, verb := range []string{"enable", "restart"} {
		if err := systemctl(ctx, append([]string{verb}, units(programs)...)...); err != nil {
			return err
		}
	}
	return nil
}

func units(programs []string) []string {
	out := slices.Clone(programs)
	for i, p := range out {
		out[i] = unit(p)
	}
	return out
}

// systemctl runs the command systemctl.
func systemctl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl %s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// useRelease makes the release in dir the one that the machine uses.
func useRelease(dir string) error {
	if target, err := os.Readlink(current); err == nil && target == dir {
		return nil
	}
	next := current + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("link to the release: %w", err)
	}
	if err := os.Symlink(dir, next); err != nil {
		return fmt.Errorf("link to the release: %w", err)
	}
	if err := os.Rename(next, current); err != nil {
		return fmt.Errorf("link to the release: %w", err)
	}
	return nil
}

// release returns the directory of the release that contains the running program, RELEASE/bin/ctl.
func release() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("own program: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", fmt.Errorf("own program: %w", err)
	}
	dir := filepath.Dir(filepath.Dir(self))
	if filepath.Dir(dir) != releases {
		return "", fmt.Errorf("%s: %w", self, errNotInstalled)
	}
	return dir, nil
}

var errNotInstalled = errors.New("this program is not part of an installed release (" + releases + "/VERSION/bin/ctl)")
