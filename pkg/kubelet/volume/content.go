// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"keelson.dev/keelson/pkg/kubelet/downward"
)

// file is one file of a volume whose content comes from API objects.
type file struct {
	data []byte
	mode int32
	user *int64 // owner of the file; nil for the kubelet's user
}

// defaultMode is the mode that the API server sets on files if a volume has no defaultMode.
const defaultMode int32 = 0o644

// defaultTokenExpiry is the lifetime that the API server gives to a token without
// expirationSeconds.
const defaultTokenExpiry = time.Hour

// secretMode is the mode of files that only one known user or group may read.
const secretMode int32 = 0o600

func modeOr(mode *int32, fallback int32) int32 {
	if mode != nil {
		return *mode
	}
	return fallback
}

func isTrue(b *bool) bool { return b != nil && *b }

// collect returns the files of a volume whose content comes from API objects. The keys of the map
// are paths relative to the volume.
func (m *Manager) collect(ctx context.Context, pod *v1.Pod, v *v1.Volume) (map[string]file, error) {
	out := map[string]file{}
	switch s := &v.VolumeSource; {
	case s.ConfigMap != nil:
		c := s.ConfigMap
		return out, m.addConfigMap(ctx, out, pod, c.Name, c.Items, modeOr(c.DefaultMode, defaultMode), isTrue(c.Optional))
	case s.Secret != nil:
		c := s.Secret
		return out, m.addSecret(ctx, out, pod, c.SecretName, c.Items, modeOr(c.DefaultMode, defaultMode), isTrue(c.Optional))
	case s.DownwardAPI != nil:
		return out, m.addDownward(out, pod, s.DownwardAPI.Items, modeOr(s.DownwardAPI.DefaultMode, defaultMode))
	case s.Projected != nil:
		var errs []error
		for i := range s.Projected.Sources {
			if err := m.addProjection(ctx, out, pod, v, i); err != nil {
				errs = append(errs, err)
			}
		}
		return out, utilerrors.NewAggregate(errs)
	}
	return nil, errors.New("no volume plugin matched")
}

// addProjection adds the files of the source with this index of a projected volume.
func (m *Manager) addProjection(ctx context.Context, out map[string]file, pod *v1.Pod, v *v1.Volume, index int) error {
	mode := modeOr(v.Projected.DefaultMode, defaultMode)
	switch s := &v.Projected.Sources[index]; {
	case s.Secret != nil:
		return m.addSecret(ctx, out, pod, s.Secret.Name, s.Secret.Items, mode, isTrue(s.Secret.Optional))
	case s.ConfigMap != nil:
		return m.addConfigMap(ctx, out, pod, s.ConfigMap.Name, s.ConfigMap.Items, mode, isTrue(s.ConfigMap.Optional))
	case s.DownwardAPI != nil:
		return m.addDownward(out, pod, s.DownwardAPI.Items, mode)
	case s.ServiceAccountToken != nil:
		return m.addToken(ctx, out, pod, s.ServiceAccountToken, mode)
	case s.ClusterTrustBundle != nil:
		pem, err := m.trustBundle(ctx, s.ClusterTrustBundle)
		if err != nil {
			return err
		}
		f := private(pod, mode)
		f.data = pem
		out[s.ClusterTrustBundle.Path] = f
		return nil
	case s.PodCertificate != nil:
		key, chain, err := m.cfg.Certificates.Credentials(pod, v.Name, index, s.PodCertificate)
		if err != nil {
			return err
		}
		addPodCertificate(out, s.PodCertificate, private(pod, mode), key, chain)
	}
	return nil
}

// addPodCertificate adds the files of a podCertificate source. The argument f has their mode and
// owner.
func addPodCertificate(out map[string]file, s *v1.PodCertificateProjection, f file, key, chain []byte) {
	for path, data := range map[string][]byte{
		s.CredentialBundlePath: slices.Concat(key, chain), s.KeyPath: key, s.CertificateChainPath: chain,
	} {
		if path != "" {
			f.data = data
			out[path] = f
		}
	}
}

// private returns a file for a secret value, such as a token, with the given mode. If all
// containers run as one known user, the file belongs to that user and has mode 0600. If the pod has
// an fsGroup, the mode is 0600 too, and changing the file's group to the fsGroup later makes it
// 0640.
func private(pod *v1.Pod, mode int32) file {
	user := singleUser(pod)
	if user != nil || fsGroup(pod) != nil {
		mode = secretMode
	}
	return file{mode: mode, user: user}
}

func (m *Manager) addToken(ctx context.Context, out map[string]file, pod *v1.Pod,
	s *v1.ServiceAccountTokenProjection, mode int32) error {
	var audiences []string
	if s.Audience != "" {
		audiences = []string{s.Audience}
	}
	expiry := defaultTokenExpiry
	if s.ExpirationSeconds != nil {
		expiry = time.Duration(*s.ExpirationSeconds) * time.Second
	}
	token, err := m.cfg.Objects.ServiceAccountToken(ctx, pod, pod.Spec.ServiceAccountName, audiences, expiry)
	if err != nil {
		return err
	}
	f := private(pod, mode)
	f.data = []byte(token.Token)
	out[s.Path] = f
	return nil
}

func (m *Manager) addConfigMap(ctx context.Context, out map[string]file, pod *v1.Pod, name string,
	items []v1.KeyToPath, mode int32, optional bool) error {
	cm, err := m.cfg.Objects.ConfigMap(ctx, pod.Namespace, name)
	if apierrors.IsNotFound(err) && optional {
		cm, err = &v1.ConfigMap{}, nil
	}
	if err != nil {
		return err
	}
	data := make(map[string][]byte, len(cm.Data)+len(cm.BinaryData))
	for k, v := range cm.BinaryData {
		data[k] = v
	}
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	if key, ok := addKeys(out, data, items, mode, optional); !ok {
		return fmt.Errorf("configmap references non-existent config key: %s", key)
	}
	return nil
}

func (m *Manager) addSecret(ctx context.Context, out map[string]file, pod *v1.Pod, name string,
	items []v1.KeyToPath, mode int32, optional bool) error {
	s, err := m.cfg.Objects.Secret(ctx, pod.Namespace, name)
	if apierrors.IsNotFound(err) && optional {
		s, err = &v1.Secret{}, nil
	}
	if err != nil {
		return err
	}
	if key, ok := addKeys(out, s.Data, items, mode, optional); !ok {
		return fmt.Errorf("references non-existent secret key: %s", key)
	}
	return nil
}

// addKeys adds the given items of data as files, or all keys if there are no items. If an item does
// not exist in data and optional is false, addKeys returns its key, and ok is false.
func addKeys(out map[string]file, data map[string][]byte, items []v1.KeyToPath, mode int32,
	optional bool) (missing string, ok bool) {
	if len(items) == 0 {
		for k, v := range data {
			out[k] = file{data: v, mode: mode}
		}
		return "", true
	}
	for _, it := range items {
		v, exists := data[it.Key]
		switch {
		case exists:
			out[it.Path] = file{data: v, mode: modeOr(it.Mode, mode)}
		case !optional:
			return it.Key, false
		}
	}
	return "", true
}

func (m *Manager) addDownward(out map[string]file, pod *v1.Pod, items []v1.DownwardAPIVolumeFile, mode int32) error {
	var errs []error
	for i := range items {
		it := &items[i]
		var text string
		var err error
		switch {
		case it.FieldRef != nil:
			text, err = downward.Metadata(pod, it.FieldRef.FieldPath)
		case it.ResourceFieldRef != nil:
			var c *v1.Container
			if c, err = downward.Container(pod, it.ResourceFieldRef.ContainerName); err == nil {
				text, err = downward.Resource(it.ResourceFieldRef, downward.WithLimits(c, m.allocatable()))
			}
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out[filepath.Clean(it.Path)] = file{data: []byte(text), mode: modeOr(it.Mode, mode)}
	}
	return utilerrors.NewAggregate(errs)
}

func (m *Manager) allocatable() v1.ResourceList {
	if m.cfg.Allocatable == nil {
		return nil
	}
	return m.cfg.Allocatable()
}
