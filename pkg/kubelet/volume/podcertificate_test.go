// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/test/unshare"
)

// certificates implements Certificates.
type certificates struct {
	issued    int   // how often certificates were issued
	err       error // returned instead of certificates if not nil
	forgotten []types.UID
}

func (c *certificates) Credentials(pod *v1.Pod, volume string, index int,
	s *v1.PodCertificateProjection) (key, chain []byte, err error) {
	if c.err != nil {
		return nil, nil, c.err
	}
	text := fmt.Sprintf("%s/%s/%d/%s/%d", pod.UID, volume, index, s.SignerName, c.issued)
	return []byte("key " + text + "\n"), []byte("chain " + text + "\n"), nil
}

func (c *certificates) Forget(pod types.UID) { c.forgotten = append(c.forgotten, pod) }

// TestPodCertificates checks the files of podCertificate sources when the volume is set up, when a
// certificate is renewed, and when a renewal is denied.
func TestPodCertificates(t *testing.T) {
	unshare.Need(t)
	pod := testPod(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
		DefaultMode: ptr[int32](0o640), Sources: []v1.VolumeProjection{
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
				{Path: "name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
			{PodCertificate: &v1.PodCertificateProjection{SignerName: "a", CredentialBundlePath: "a.pem"}},
			{PodCertificate: &v1.PodCertificateProjection{SignerName: "b", KeyPath: "b.key", CertificateChainPath: "b.crt"}},
		},
	}}})
	c := &certificates{err: errors.New("credential bundle is not issued yet")}
	m := newManager(t, newMemory())
	m.cfg.Certificates = c
	_, err := m.Prepare(t.Context(), pod)
	// The error contains equal errors of several sources once.
	want := `MountVolume.SetUp failed for volume "v" : credential bundle is not issued yet`
	if err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}

	c.err = nil
	ms := prepare(t, m, pod)
	dir := pathOf(t, ms, "v")
	files := func() map[string]string {
		out := map[string]string{}
		for _, name := range []string{"name", "a.pem", "b.key", "b.crt"} {
			out[name] = read(t, dir, name)
		}
		return out
	}
	wantFiles := func(issued int) map[string]string {
		return map[string]string{
			"name":  "p",
			"a.pem": fmt.Sprintf("key uid-1/v/1/a/%d\nchain uid-1/v/1/a/%[1]d\n", issued),
			"b.key": fmt.Sprintf("key uid-1/v/2/b/%d\n", issued),
			"b.crt": fmt.Sprintf("chain uid-1/v/2/b/%d\n", issued),
		}
	}
	if d := cmp.Diff(wantFiles(0), files()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if entries, err := filepath.Glob(filepath.Join(dir, "[a-z]*")); err != nil || len(entries) != 4 {
		t.Errorf("files %v, %v", entries, err)
	}
	if got := mode(t, dir, "b.key"); got != 0o640 {
		t.Errorf("mode %v", got)
	}

	c.issued = 1
	if err := m.refresh(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wantFiles(1), files()); d != "" {
		t.Errorf("renewed (-want +got):\n%s", d)
	}
	c.err = errors.New("denied")
	if err := m.refresh(t.Context(), pod.UID); err == nil {
		t.Error("no error although the certificate was denied")
	}
	if d := cmp.Diff(wantFiles(1), files()); d != "" {
		t.Errorf("denied (-want +got):\n%s", d)
	}

	if err := m.Teardown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]types.UID{pod.UID}, c.forgotten); d != "" {
		t.Errorf("forgotten pods (-want +got):\n%s", d)
	}
}

// TestPodCertificateIsPrivate checks that only the pod's known user or group can read its keys.
func TestPodCertificateIsPrivate(t *testing.T) {
	unshare.Need(t)
	for name, c := range map[string]struct {
		security v1.PodSecurityContext
		want     fs.FileMode
	}{
		"user":  {v1.PodSecurityContext{RunAsUser: ptr[int64](0)}, 0o600},
		"group": {v1.PodSecurityContext{FSGroup: ptr[int64](0)}, 0o640},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testPod(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				DefaultMode: ptr[int32](0o644), Sources: []v1.VolumeProjection{
					{PodCertificate: &v1.PodCertificateProjection{KeyPath: "key"}}},
			}}})
			pod.Spec.SecurityContext = &c.security
			dir := pathOf(t, prepare(t, newManager(t, newMemory()), pod), "v")
			if got := mode(t, dir, "key").Perm(); got != c.want {
				t.Errorf("mode %v, want %v", got, c.want)
			}
		})
	}
}
