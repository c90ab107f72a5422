// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// registry returns a layer with the image in the form in which agnhost's fake-registry-server reads
// images from disk. A file named after the tag refers to the manifest. The manifest and each blob
// are in files named after their digests.
func (s spec) registry(name, tag string) (layer, error) {
	img, err := s.image()
	if err != nil {
		return nil, err
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, fmt.Errorf("digest: %w", err)
	}
	manifest, err := img.RawManifest()
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	id, err := img.ConfigName()
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	root := "var/registry/" + name + "/"
	out := layer{text(root+"manifests/"+tag, digest.String()), stored(root+"manifests", digest, manifest),
		stored(root+"blobs", id, config)}
	layers, err := img.Layers()
	if err != nil {
		return nil, fmt.Errorf("layers: %w", err)
	}
	for _, l := range layers {
		blob, err := l.Digest()
		if err != nil {
			return nil, fmt.Errorf("layer: %w", err)
		}
		content, err := l.Compressed()
		if err != nil {
			return nil, fmt.Errorf("layer: %w", err)
		}
		bytes, err := io.ReadAll(content)
		if err != nil {
			return nil, fmt.Errorf("layer: %w", err)
		}
		out = append(out, stored(root+"blobs", blob, bytes))
	}
	return out, nil
}

func stored(below string, h v1.Hash, content []byte) entry {
	return text(fmt.Sprintf("%s/%s/%s/%s/data", below, h.Algorithm, h.Hex[:2], h.Hex), string(content))
}
