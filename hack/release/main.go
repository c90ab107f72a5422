// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release makes the files of a release from programs that hack/release.sh has built: an
// archive and a Debian package with the same files. It adds the licences of all parts, a bill of
// materials, the inputs of the build, and checksums.
//
// The same programs and flags give the same bytes on every machine: files are sorted, owned by root,
// and have the time of the commit.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release describes what is released.
type release struct {
	Version, Arch, Commit string
	Time                  time.Time
	// Root is the directory with the files of the release. Parts has a directory for each image, with
	// the programs in it.
	Root, Parts string
	// Texts is the directory with the licences of parts that are not Go modules, and Modules the
	// directory of Go's module cache. Source is the root of this repository.
	Texts, Modules, Source string
	// Debian is the file that lists the Debian packages that took part in the build: a name and a
	// version in each line.
	Debian string
	// Quick compresses little, for tests.
	Quick bool
}

// name returns the name of the release's archive without its ending.
func (r *release) name() string { return "keelson-" + r.Version + "-linux-" + r.Arch }

func run(args []string, stderr io.Writer) error {
	var r release
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&r.Version, "version", "", "version of the release")
	flags.StringVar(&r.Arch, "arch", "", "architecture of the programs: amd64 or arm64")
	flags.StringVar(&r.Commit, "commit", "", "commit from which the programs were built")
	seconds := flags.Int64("time", 0, "time of the commit in seconds since 1970, which all files get")
	flags.StringVar(&r.Root, "root", "", "directory with the files of the release; gets the generated files too")
	flags.StringVar(&r.Parts, "parts", "", "directory that has a directory for each image, with the image's programs")
	flags.StringVar(&r.Texts, "texts", "", "directory with the licences of parts that are not Go modules")
	flags.StringVar(&r.Modules, "modules", "", "directory of Go's module cache")
	flags.StringVar(&r.Source, "source", "", "root of Keelson's repository")
	flags.StringVar(&r.Debian, "debian", "", "file that lists the Debian packages of the build, with their versions")
	flags.BoolVar(&r.Quick, "quick", false, "compress little, for tests")
	out := flags.String("out", "", "directory in which the archive and the package are written")
	if err := flags.Parse(args); err != nil {
		return err
	}
	missing := false
	flags.VisitAll(func(f *flag.Flag) { missing = missing || f.Name != "quick" && f.Value.String() == f.DefValue })
	if missing || flags.NArg() > 0 {
		return errors.New("all flags except -quick are required, and no arguments are accepted")
	}
	r.Time = time.Unix(*seconds, 0).UTC()
	if err := r.complete(); err != nil {
		return err
	}
	files, err := list(r.Root)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(*out, r.name()+".tar.xz"), func(w io.Writer) error {
		return r.compress(w, func(w io.Writer) error { return archive(w, "keelson-"+r.Version, files, r.Time) })
	}); err != nil {
		return err
	}
	p := r.debian(files)
	return writeFile(filepath.Join(*out, p.file), func(w io.Writer) error { return p.write(w, r.compress) })
}

// complete adds the generated files to the directory of the release.
func (r *release) complete() error {
	programs, err := r.programs()
	if err != nil {
		return err
	}
	packages, err := readPackages(r.Debian)
	if err != nil {
		return err
	}
	parts, err := r.components(programs, packages)
	if err != nil {
		return err
	}
	licences, err := r.collect(parts, modules(programs))
	if err != nil {
		return err
	}
	bill, err := r.bill(programs, parts, licences)
	if err != nil {
		return err
	}
	inputs, err := r.inputs(programs, packages)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"VERSION": []byte(r.Version + "\n"), "sbom.spdx.json": bill, "inputs.json": inputs,
	} {
		if err := os.WriteFile(filepath.Join(r.Root, name), content, 0o644); err != nil {
			return err
		}
	}
	return writeSums(r.Root)
}

// writeFile writes a file through write. It replaces the file atomically.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Close())
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), errors.Join(err, os.Remove(f.Name())))
	}
	return os.Rename(f.Name(), path)
}
