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

// hasFlags reports whether this machine has the flags of a program. Its unit does not start without them.
func hasFlags(program string) bool { return exists(argsFile(program)) }

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

// queueStart lets systemd start units, and does not wait for that: etcd is ready only when it has a quorum, which can
// take forever, and the API server starts after etcd.
func queueStart(ctx context.Context, units ...string) error {
	return systemctl(ctx, append([]string{"start", "--no-block"}, units...)...)
}

// slice is the slice of all units.
const slice = "keelson.slice"

// stopUnits stops those of the given units that run, or that systemd starts again and again.
func stopUnits(ctx context.Context, units ...string) error {
	running, err := activeUnits(ctx, units...)
	if err != nil || len(running) == 0 {
		return err
	}
	return systemctl(ctx, append([]string{"stop"}, running...)...)
}

// activeUnits returns those of the given units that are not inactive. Units that have failed are not.
func activeUnits(ctx context.Context, units ...string) ([]string, error) {
	args := append([]string{"list-units", "--all", "--plain", "--no-legend", "--full"}, units...)
	out, err := exec.CommandContext(ctx, "systemctl", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("list units: %w", err)
	}
	return parseUnits(string(out)), nil
}

// parseUnits returns the units that are not inactive from lines with a unit's name, and whether it is
// loaded and active.
func parseUnits(lines string) (out []string) {
	for line := range strings.Lines(lines) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] != "inactive" {
			out = append(out, fields[0])
		}
	}
	return out
}

// removeUnits stops all units, and removes the links by which systemd knows and starts them. It removes
// the links itself, because systemctl does not if their target is missing.
func removeUnits(ctx context.Context) error {
	all := append(units(programs()), backupTimer, unit(backupName), unit(switcher), unit(rejoiner), slice)
	errs := []error{stopUnits(ctx, all...), removeLinksInto(unitsDir, releases), systemctl(ctx, "daemon-reload")}
	failed, err := activeUnits(ctx, all...)
	if errs = append(errs, err); len(failed) > 0 {
		errs = append(errs, systemctl(ctx, append([]string{"reset-failed"}, failed...)...))
	}
	return errors.Join(errs...)
}

// systemctl runs the command systemctl.
func systemctl(ctx context.Context, args ...string) error { return command(ctx, "systemctl", args...) }

// command runs a command. Its error contains the command's output.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// useRelease makes the release in dir the one that the machine uses.
func useRelease(dir string) error { return replaceLink(current, dir) }

// currentRelease returns the name of the release that the machine uses.
func currentRelease() (string, error) {
	dir, err := os.Readlink(current)
	if err != nil {
		return "", fmt.Errorf("link to the release: %w", err)
	}
	return filepath.Base(dir), nil
}

// replaceLink makes link a symbolic link to target. The link is never missing meanwhile.
func replaceLink(link, target string) error {
	if old, err := os.Readlink(link); err == nil && old == target {
		return nil
	}
	next := link + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("link to the release: %w", err)
	}
	if err := os.Symlink(target, next); err != nil {
		return fmt.Errorf("link to the release: %w", err)
	}
	if err := os.Rename(next, link); err != nil {
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
