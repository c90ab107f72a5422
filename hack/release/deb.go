// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"path/filepath"

	"github.com/blakesmith/ar"
	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// depends has the Debian packages whose programs Keelson's programs run: the kubelet runs mkfs.ext4,
// e2fsck and resize2fs for volumes (e2fsprogs), mount and umount (mount), and journalctl (systemd),
// which also runs the units. The CNI plugin portmap runs nft (nftables). All other programs that they
// run are in packages that every Debian system has (fsck, blkid and nsenter in util-linux).
var depends = []string{"e2fsprogs", "mount", "nftables", "systemd"}

// recommends has the packages that most machines need: containerd verifies registries with the
// authorities of ca-certificates, and the kernel runs modprobe of kmod when it needs a module.
var recommends = []string{"ca-certificates", "kmod"}

// suggests has the packages for machines with AppArmor, where containerd runs apparmor_parser.
var suggests = []string{"apparmor"}

const description = `Kubernetes control plane and node agent, one version
All programs, images and systemd units of this version of Keelson. Several
versions can be installed at once. Installing this package starts and changes
no process: ctl selects the version that a machine runs.`

type debPackage struct {
	file string
	info *nfpm.Info
}

// debian returns the Debian package of the release, which has the version in its name, so that several
// versions can be installed at once.
func (r *release) debian(list []file) debPackage {
	top, name := "/usr/lib/keelson/"+r.Version, "keelson-"+r.Version
	info := &nfpm.Info{
		Name: name, Arch: r.Arch, Platform: "linux", Version: r.Version, VersionSchema: "semver", MTime: r.Time,
		Section: "admin", Priority: "optional", Maintainer: "The Keelson Authors <maintainers@keelson.dev>",
		Description: description, License: "Apache-2.0",
		Overridables: nfpm.Overridables{
			Depends: depends, Recommends: recommends, Suggests: suggests,
			Scripts: nfpm.Scripts{PreRemove: filepath.Join(r.Source, "hack/release/prerm")},
			Deb:     nfpm.Deb{Compression: "none"}, // see write
		},
	}
	for _, f := range append([]file{{Dir: true}}, list...) {
		c := &files.Content{
			Source: f.Path, Destination: path.Join(top, f.Name),
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode(), MTime: r.Time},
		}
		switch {
		case f.Dir:
			c.Source, c.Type, c.FileInfo.Mode = "", files.TypeDir, f.mode()|fs.ModeDir
		case f.Link != "":
			c.Source, c.Type = f.Link, files.TypeSymlink
		}
		info.Contents = append(info.Contents, c)
	}
	info.Contents = append(info.Contents, &files.Content{
		Source:      filepath.Join(r.Source, "hack/release/copyright"),
		Destination: "/usr/share/doc/" + name + "/copyright",
		FileInfo:    &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o644, MTime: r.Time},
	})
	info = nfpm.WithDefaults(info)
	return debPackage{deb.Default.ConventionalFileName(info), info}
}

// write writes the package, with its files compressed by compress. nfpm's own xz is not used, because
// its dictionary is small, so that the package would be a quarter larger.
func (p debPackage) write(w io.Writer, compress func(io.Writer, func(io.Writer) error) error) error {
	if err := nfpm.PrepareForPackager(p.info, "deb"); err != nil {
		return err
	}
	var plain bytes.Buffer
	if err := deb.Default.Package(p.info, &plain); err != nil {
		return err
	}
	in, out := ar.NewReader(&plain), ar.NewWriter(w)
	if err := out.WriteGlobalHeader(); err != nil {
		return err
	}
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var member bytes.Buffer
		copyMember := func(w io.Writer) error {
			_, err := io.Copy(w, in)
			return err
		}
		if h.Name == "data.tar" {
			h.Name += ".xz"
			err = compress(&member, copyMember)
		} else {
			err = copyMember(&member)
		}
		if err != nil {
			return err
		}
		h.Size = int64(member.Len())
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := out.Write(member.Bytes()); err != nil {
			return err
		}
	}
}
