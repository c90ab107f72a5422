// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"keelson.dev/keelson/pkg/machine/config"
)

// Options say for what a machine is checked.
type Options struct {
	Config *config.KeelsonConfiguration // valid, with defaults
	// ControlPlane is true if the machine gets a control plane.
	ControlPlane bool
	// Built is when the release was built. It is zero if that is not known.
	Built time.Time
}

// Run makes all checks and returns their findings.
func Run(ctx context.Context, s *System, o Options) []Finding {
	c := &checker{System: s, Options: o}
	for _, check := range []func(context.Context){
		c.root, c.systemd, c.kernel, c.cgroups, c.swap, c.clock, c.ports, c.hostName, c.ownAddresses, c.clashes, c.oldState,
		c.runtimes, c.firewalls, c.disk, c.programs,
	} {
		check(ctx)
	}
	return c.findings
}

// checker collects the findings about a machine.
type checker struct {
	*System
	Options
	findings []Finding
}

func (c *checker) failf(check, remedy, format string, args ...any) {
	c.findings = append(c.findings, Finding{check, Error, fmt.Sprintf(format, args...), remedy})
}

func (c *checker) warnf(check, remedy, format string, args ...any) {
	c.findings = append(c.findings, Finding{check, Warning, fmt.Sprintf(format, args...), remedy})
}

// text returns the content of a file without space at its ends, or "" if it cannot be read.
func (c *checker) text(file string) string {
	data, err := fs.ReadFile(c.Files, strings.TrimPrefix(file, "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func (c *checker) exists(file string) bool {
	_, err := fs.Stat(c.Files, strings.TrimPrefix(file, "/"))
	return err == nil
}

// hasFiles reports whether a path is a file, or a directory with a file in it or below it.
func (c *checker) hasFiles(root string) bool {
	found := false
	_ = fs.WalkDir(c.Files, strings.TrimPrefix(root, "/"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = true
			return fs.SkipAll
		}
		return nil // what cannot be read does not exist, or is not ours
	})
	return found
}

// running returns the IDs of the processes with one of the given names, by name.
func (c *checker) running(names ...string) map[string]string {
	out := map[string]string{}
	files, _ := fs.Glob(c.Files, "proc/[0-9]*/comm") // the pattern is valid
	for _, file := range files {
		comm := c.text(file)
		for _, name := range names {
			if comm == name {
				out[name] = path.Base(path.Dir(file))
			}
		}
	}
	return out
}

func (c *checker) root(context.Context) {
	if !c.Root {
		c.failf("IsPrivilegedUser", "run the command as root, for example with sudo",
			"the command does not run as root; some checks are incomplete")
	}
}

func (c *checker) systemd(context.Context) {
	if !c.exists("/run/systemd/system") {
		c.failf("Systemd", "use a distribution with systemd, or make a cluster for tests with \"ctl cluster up\"",
			"the machine was not booted by systemd, whose units start all programs")
	}
}

func (c *checker) swap(context.Context) {
	lines := strings.Split(c.text("/proc/swaps"), "\n")
	for _, line := range lines[1:] {
		if device := strings.Fields(line); len(device) > 0 {
			c.warnf("Swap", "turn it off with \"swapoff -a\", and remove it from /etc/fstab and from systemd's swap units",
				"swap is on (%s): the kubelet does not let pods use it with cgroup version 2, but cannot prevent it with "+
					"version 1; what pods keep in memory can then reach the disk", device[0])
		}
	}
}

func (c *checker) clock(context.Context) {
	const remedy = "set the clock, and follow a time server, for example with systemd-timesyncd or chrony"
	switch {
	case c.Now.Before(c.Built):
		c.warnf("Time", remedy, "the clock shows %s, before this release was built (%s): certificates will not be valid",
			c.Now.UTC().Format(time.DateTime), c.Built.UTC().Format(time.DateTime))
	case !c.Synchronised:
		c.warnf("Time", remedy, "the clock follows no time server: machines whose clocks differ reject each other's "+
			"certificates and tokens")
	}
}

// disks of a machine need this free space: for the images of the release, and for anything at all.
const (
	comfortable = 10 << 30
	least       = 2 << 30
)

// badFileSystems are the file systems on which the kernel or containerd cannot make the layers of
// containers.
func badFileSystems() map[int64]string {
	return map[int64]string{
		0x794c7630: "overlay", 0x6969: "NFS", 0x65735546: "FUSE", 0x4d44: "FAT", 0x2011bab0: "exFAT", 0x5346544e: "NTFS",
		0xf15f: "eCryptfs", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x01021997: "9P", 0x73717368: "squashfs",
	}
}

func (c *checker) disk(context.Context) {
	for _, dir := range []string{"/var/lib/containerd", "/var/lib/kubelet", "/var/lib/etcd"} {
		if dir == "/var/lib/etcd" && !c.ControlPlane {
			continue
		}
		for !c.exists(dir) && dir != "/var" {
			dir = path.Dir(dir)
		}
		s, err := c.Space(dir)
		if err != nil {
			c.failf("Disk", "make the directory readable", "%v", err)
			return
		}
		if bad := badFileSystems()[s.Type]; bad != "" {
			c.failf("FileSystem", "mount a disk with ext4, XFS or Btrfs at "+dir,
				"%s is on the file system %s, on which containers' layers do not work", dir, bad)
			return
		}
		if !c.enough(dir, s) {
			return
		}
	}
}

// enough reports whether a file system has enough space, and adds a finding if not.
func (c *checker) enough(dir string, s Space) bool {
	const remedy = "delete files, mount a larger disk, or set kubelet.evictionHard (--eviction-hard)"
	free := fmt.Sprintf("%.1f GiB", float64(s.Free)/(1<<30))
	var percent float64
	threshold := c.Config.Kubelet.EvictionHard["nodefs.available"]
	_, err := fmt.Sscanf(threshold, "%f%%", &percent)
	switch {
	case s.Free < least:
		c.failf("Disk", remedy, "the disk of %s has only %s of free space, less than %d GiB", dir, free, least>>30)
	case err == nil && float64(s.Free) < float64(s.Total)*percent/100:
		c.failf("Disk", remedy, "the disk of %s has %s of free space, less than %s: the kubelet would evict all pods at once",
			dir, free, threshold)
	case s.Free < comfortable:
		c.warnf("Disk", remedy, "the disk of %s has only %s of free space", dir, free)
	default:
		return true
	}
	return false
}

// programs checks for programs that a minimal system may not have.
func (c *checker) programs(context.Context) {
	for _, p := range []struct{ name, pack string }{
		{"mount", "mount"}, {"umount", "mount"}, {"mkfs.ext4", "e2fsprogs"}, {"resize2fs", "e2fsprogs"},
	} {
		found := false
		for _, dir := range []string{"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/", "/usr/local/sbin/", "/usr/local/bin/"} {
			found = found || c.exists(dir+p.name)
		}
		if !found {
			c.failf("FileExisting-"+p.name, "install the package "+p.pack,
				"the program %s, with which the kubelet mounts volumes, is not installed", p.name)
		}
	}
}
