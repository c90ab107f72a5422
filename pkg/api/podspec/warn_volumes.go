// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Warnings about types of volumes that Kubernetes no longer supports.
const (
	gonePhoton    = "deprecated in v1.11, non-functional in v1.16+"
	goneScaleIO   = "deprecated in v1.16, non-functional in v1.22+"
	goneStorageOS = "deprecated in v1.22, non-functional in v1.25+"
	goneGlusterfs = "deprecated in v1.25, non-functional in v1.26+"
	goneCeph      = "deprecated in v1.28, non-functional in v1.31+"
)

func (c *cautions) volumes(volumes []corev1.Volume, path *field.Path) {
	for i := range volumes {
		v, at := &volumes[i].VolumeSource, path.Index(i)
		c.gone(v.PhotonPersistentDisk != nil, at, "photonPersistentDisk", gonePhoton)
		c.gone(v.GitRepo != nil, at, "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+")
		c.gone(v.ScaleIO != nil, at, "scaleIO", goneScaleIO)
		c.gone(v.Flocker != nil, at, "flocker", goneStorageOS)
		c.gone(v.StorageOS != nil, at, "storageOS", goneStorageOS)
		c.gone(v.Quobyte != nil, at, "quobyte", goneStorageOS)
		c.gone(v.Glusterfs != nil, at, "glusterfs", goneGlusterfs)
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			*c = append(*c, WarnOfClaim(&v.Ephemeral.VolumeClaimTemplate.Spec,
				at.Child("ephemeral", "volumeClaimTemplate", "spec"))...)
		}
		c.gone(v.CephFS != nil, at, "cephfs", goneCeph)
		c.gone(v.RBD != nil, at, "rbd", goneCeph)
	}
}

func (c *cautions) gone(is bool, path *field.Path, name, since string) {
	if is {
		c.addf(path.Child(name), "%s", since)
	}
}

// WarnOfPersistentSource warns about a persistent volume of a type that Kubernetes no longer
// supports.
func WarnOfPersistentSource(s *corev1.PersistentVolumeSource, path *field.Path) []string {
	var c cautions
	c.gone(s.CephFS != nil, path, "cephfs", goneCeph)
	c.gone(s.PhotonPersistentDisk != nil, path, "photonPersistentDisk", gonePhoton)
	c.gone(s.ScaleIO != nil, path, "scaleIO", goneScaleIO)
	c.gone(s.StorageOS != nil, path, "storageOS", goneStorageOS)
	c.gone(s.Glusterfs != nil, path, "glusterfs", goneGlusterfs)
	c.gone(s.RBD != nil, path, "rbd", goneCeph)
	return c
}

// placed is the path of a file in a projected volume, and the source that writes the file.
type placed struct{ path, by string }

func (p placed) String() string {
	if p.by == "" {
		return fmt.Sprintf("%q", p.path)
	}
	return fmt.Sprintf("%q (%s)", p.path, p.by)
}

// overlaps warns about files in a volume that are at the path of another file or below it.
func (c *cautions) overlaps(v *corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		c.collisions(v.Name, fmt.Sprintf("ConfigMap %q", v.ConfigMap.Name), keyPaths(v.ConfigMap.Items, ""))
	case v.Secret != nil:
		c.collisions(v.Name, fmt.Sprintf("Secret %q", v.Secret.SecretName), keyPaths(v.Secret.Items, ""))
	case v.DownwardAPI != nil:
		c.collisions(v.Name, "DownwardAPI", filePaths(v.DownwardAPI.Items, ""))
	case v.Projected != nil:
		var all []placed
		for i := range v.Projected.Sources {
			s := &v.Projected.Sources[i]
			if *s == (corev1.VolumeProjection{}) {
				*c = append(*c, fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
				continue
			}
			all = c.collide(v.Name, "Projected", all, projectedPaths(s))
		}
	}
}

func (c *cautions) collisions(volume, what string, paths []placed) {
	c.collide(volume, what, nil, paths)
}

// collide adds paths to the list known and returns the result. It warns about each path that
// collides with an earlier one.
func (c *cautions) collide(volume, what string, known, paths []placed) []placed {
	for _, p := range paths {
		p.path = strings.TrimRight(p.path, "/")
		for _, other := range known {
			if p.collides(other) {
				*c = append(*c, fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", volume, what, p, other))
			}
		}
		known = append(known, p)
	}
	return known
}

func (p placed) collides(other placed) bool {
	if p.path == "" || other.path == "" {
		return false
	}
	return p == other || strings.HasPrefix(other.path+"/", p.path+"/") || strings.HasPrefix(p.path+"/", other.path+"/")
}

func keyPaths(items []corev1.KeyToPath, by string) []placed {
	paths := make([]placed, len(items))
	for i := range items {
		paths[i] = placed{items[i].Path, by}
	}
	return paths
}

func filePaths(items []corev1.DownwardAPIVolumeFile, by string) []placed {
	paths := make([]placed, len(items))
	for i := range items {
		paths[i] = placed{items[i].Path, by}
	}
	return paths
}

func projectedPaths(s *corev1.VolumeProjection) []placed {
	switch {
	case s.ConfigMap != nil && s.ConfigMap.Items != nil:
		return keyPaths(s.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", s.ConfigMap.Name))
	case s.Secret != nil && s.Secret.Items != nil:
		return keyPaths(s.Secret.Items, fmt.Sprintf("Secret %q", s.Secret.Name))
	case s.DownwardAPI != nil && s.DownwardAPI.Items != nil:
		return filePaths(s.DownwardAPI.Items, "DownwardAPI")
	case s.ServiceAccountToken != nil:
		return []placed{{s.ServiceAccountToken.Path, "ServiceAccountToken"}}
	case s.ClusterTrustBundle != nil:
		name := s.ClusterTrustBundle.Name
		if name == nil {
			name = s.ClusterTrustBundle.SignerName
		}
		return []placed{{s.ClusterTrustBundle.Path, fmt.Sprintf("ClusterTrustBundle %q", *name)}}
	case s.PodCertificate != nil:
		return certificatePaths(s.PodCertificate)
	}
	return nil
}

func certificatePaths(s *corev1.PodCertificateProjection) []placed {
	var paths []placed
	for _, p := range []placed{
		{s.CertificateChainPath, "PodCertificate chain"},
		{s.KeyPath, "PodCertificate key"},
		{s.CredentialBundlePath, "PodCertificate credential bundle"},
	} {
		if p.path != "" {
			paths = append(paths, p)
		}
	}
	return paths
}
