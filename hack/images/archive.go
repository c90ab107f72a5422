// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nameAnnotations has the annotations for the name of an image in the index of an archive.
// containerd reads the first one, which has the full name. The second one is defined by the OCI
// image specification.
var nameAnnotations = [...]string{"io.containerd.image.name", "org.opencontainers.image.ref.name"}

// write builds the image and writes its archive to file. It replaces file atomically.
func (s spec) write(file string) error {
	img, err := s.image()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".layout-")
	if err != nil {
		return fmt.Errorf("layout directory: %w", err)
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("layout: %w", err)
	}
	for _, name := range s.Names {
		annotations := map[string]string{}
		for _, key := range nameAnnotations {
			annotations[key] = name
		}
		if err := path.AppendImage(img, layout.WithAnnotations(annotations)); err != nil {
			return fmt.Errorf("name %s: %w", name, err)
		}
	}
	if err := pack(dir, file+".new"); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// image returns the image without a name.
func (s spec) image() (v1.Image, error) {
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	for _, l := range s.Layers {
		bytes, err := l.tar()
		if err != nil {
			return nil, err
		}
		if img, err = mutate.AppendLayers(img, static.NewLayer(bytes, types.OCIUncompressedLayer)); err != nil {
			return nil, fmt.Errorf("layer: %w", err)
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config = "linux", s.Arch, s.Config
	return mutate.ConfigFile(img, config)
}

// pack writes the files below dir to a tar file, sorted by name.
func pack(dir, file string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	defer func() {
		if closeErr := out.Close(); err == nil {
			err = closeErr
		}
	}()
	buffered := bufio.NewWriterSize(out, 1<<20)
	w := tar.NewWriter(buffered)
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		return packFile(w, dir, path, d)
	}); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return buffered.Flush()
}

func packFile(w *tar.Writer, dir, path string, d fs.DirEntry) error {
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	if d.IsDir() {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755})
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}
