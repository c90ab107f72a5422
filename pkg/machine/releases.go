// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"keelson.dev/api/machines/v1alpha1"
)

// Files of a release, relative to its directory.
const (
	// formatFile has the number of the format of the release. Without the file, the format is
	// releaseFormat. A future release that cannot be installed by this one gets another format.
	formatFile = "FORMAT"
	// sumsFile has the checksums of all other files, as sha256sum prints them. Only a release that was
	// built for other machines has it.
	sumsFile = "SHA256SUMS"
)

const releaseFormat = "1"

// versionTimeout limits how long a program may take to print its version.
const versionTimeout = 10 * time.Second

// releaseDirs are the releases in a directory. It is safe for concurrent use.
type releaseDirs struct {
	dir string

	mu       sync.Mutex
	versions map[string]string // by name and time of change
}

func newReleaseDirs(dir string) *releaseDirs {
	return &releaseDirs{dir: dir, versions: map[string]string{}}
}

// list returns the installed releases, sorted by name.
func (r *releaseDirs) list(ctx context.Context) ([]v1alpha1.Release, error) {
	names, err := installedReleases(r.dir)
	if err != nil {
		return nil, err
	}
	var out []v1alpha1.Release
	for _, name := range names {
		out = append(out, v1alpha1.Release{Name: name, Kubernetes: r.version(ctx, name)})
	}
	return out, nil
}

// printedVersion matches what a program prints with --version.
var printedVersion = regexp.MustCompile(`\(Kubernetes (v[0-9]+\.[0-9]+\.[0-9]+)`)

// version returns the version of Kubernetes with which a release is compatible, or "" if its API server
// does not run.
func (r *releaseDirs) version(ctx context.Context, name string) string {
	program := filepath.Join(r.dir, name, "bin", "apiserver")
	info, err := os.Stat(program)
	if err != nil {
		return ""
	}
	key := name + " " + info.ModTime().String()
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok := r.versions[key]; ok {
		return v
	}
	v := KubernetesVersion(ctx, program)
	if v != "" { // otherwise it may do better next time
		r.versions[key] = v
	}
	return v
}

// KubernetesVersion returns the version of Kubernetes that a program prints, or "" if it prints none.
func KubernetesVersion(ctx context.Context, program string) string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if m := printedVersion.FindSubmatch(out); m != nil && err == nil {
		return string(m[1])
	}
	return ""
}

// releaseFiles returns the programs and other files that each release has.
func releaseFiles() (executables, others []string) {
	for _, p := range []string{"apiserver", "controller-manager", "scheduler", "kubelet", "proxy", "cni", "ctl"} {
		executables = append(executables, "bin/"+p)
	}
	for _, p := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "crun", "etcd"} {
		executables = append(executables, "tools/"+p)
	}
	for _, p := range append(programs(), switcher) {
		others = append(others, "systemd/"+unit(p))
	}
	return executables, others
}

var (
	errMissing      = errors.New("is not installed on this machine")
	errFormat       = errors.New("has an unknown format: switch to a release in between first")
	errArchitecture = errors.New("is not a program for the architecture of this machine")
	errSum          = errors.New("has another checksum than in " + sumsFile + ": install the release again")
	errVersion      = errors.New("its API server does not print its version")
)

// check returns an error if the release with a name cannot run on this machine. It changes nothing.
func (r *releaseDirs) check(ctx context.Context, name string) error {
	if err := checkRelease(filepath.Join(r.dir, name)); err != nil {
		return fmt.Errorf("release %s: %w", name, err)
	}
	if r.version(ctx, name) == "" {
		return fmt.Errorf("release %s: %w", name, errVersion)
	}
	return nil
}

// checkRelease checks the files of a release.
func checkRelease(dir string) error {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return errMissing
	}
	format, err := os.ReadFile(filepath.Join(dir, formatFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && strings.TrimSpace(string(format)) != releaseFormat {
		return errFormat
	}
	executables, others := releaseFiles()
	for _, file := range slices.Concat(executables, others) {
		if info, err := os.Stat(filepath.Join(dir, file)); err != nil {
			return err
		} else if slices.Contains(executables, file) && info.Mode()&0o100 == 0 {
			return fmt.Errorf("%s: %w", file, fs.ErrPermission)
		}
	}
	own, err := architecture("/proc/self/exe")
	if err != nil {
		return err
	}
	for _, file := range executables {
		if a, err := architecture(filepath.Join(dir, file)); err != nil || a != own {
			return fmt.Errorf("%s: %w", file, errArchitecture)
		}
	}
	return checkSums(dir)
}

// architecture returns the architecture of a program.
func architecture(file string) (elf.Machine, error) {
	f, err := elf.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close() // Close cannot fail in a way that matters, because the file was only read
	return f.Machine, nil
}

// checkSums checks the checksums of a release, if it has some.
func checkSums(dir string) error {
	sums, err := os.Open(filepath.Join(dir, sumsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer sums.Close() // Close cannot fail in a way that matters, because the file was only read
	lines := bufio.NewScanner(sums)
	for lines.Scan() {
		want, file, ok := strings.Cut(lines.Text(), "  ")
		if !ok {
			return fmt.Errorf("%s: line %q: %w", sumsFile, lines.Text(), errFormat)
		}
		got, err := checksum(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s: %w", file, errSum)
		}
	}
	return lines.Err()
}

func checksum(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close() // Close cannot fail in a way that matters, because the file was only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
