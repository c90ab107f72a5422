// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/test/unshare"
)

func TestSubPath(t *testing.T) {
	unshare.Need(t)
	outside := t.TempDir()
	o := newMemory()
	o.set("cm", map[string]string{"a": "1", "b": "2"})
	pod := testPod(
		v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		configMapVolume("cm", "cm"),
	)
	m := newManager(t, o)
	ms := prepare(t, m, pod)
	dir := pathOf(t, ms, "v")
	back := filepath.Join(t.TempDir(), "back")
	if err := os.Symlink(filepath.Join(dir, "real"), back); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		"out": outside, "up": "../../..", "in": "real", "dangling": "nowhere/x", "loop": "loop",
		// The target of an absolute link starts at the node's root, not at the root of the
		// container.
		"abs": filepath.Join(dir, "real"), "absFile": filepath.Join(dir, "real/file"),
		"absChain": filepath.Join(dir, "in"), "chain": "abs",
		"around": filepath.Join("..", filepath.Base(dir), "real"), "back": back, "sibling": dir + "-sibling",
		"absDangling": filepath.Join(dir, "nowhere"), "absLoop": filepath.Join(dir, "absLoop"),
		"absOut": filepath.Join(dir, "out"),
		"root":   "/", "magic": "/proc/self/root",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "real/file"), []byte("f"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"-sibling", 0o700); err != nil {
		t.Fatal(err)
	}
	const failed = `failed to prepare subPath for volumeMount "v" of container "c"`
	for name, c := range map[string]struct {
		mount v1.VolumeMount
		err   string
		same  string // path in the volume of the file that must be mounted
	}{
		"existing":                 {v1.VolumeMount{Name: "v", SubPath: "real"}, "", "real"},
		"file":                     {v1.VolumeMount{Name: "v", SubPath: "real/file"}, "", "real/file"},
		"made":                     {v1.VolumeMount{Name: "v", SubPath: "new/deep"}, "", "new/deep"},
		"link inside":              {v1.VolumeMount{Name: "v", SubPath: "in/file"}, "", "real/file"},
		"made below link":          {v1.VolumeMount{Name: "v", SubPath: "in/made"}, "", "real/made"},
		"absolute link":            {v1.VolumeMount{Name: "v", SubPath: "abs"}, "", "real"},
		"file below absolute link": {v1.VolumeMount{Name: "v", SubPath: "abs/file"}, "", "real/file"},
		"absolute link to file":    {v1.VolumeMount{Name: "v", SubPath: "absFile"}, "", "real/file"},
		"made below absolute link": {v1.VolumeMount{Name: "v", SubPath: "abs/new/deep2"}, "",
			"real/new/deep2"},
		"chain of links":                          {v1.VolumeMount{Name: "v", SubPath: "chain/file"}, "", "real/file"},
		"absolute link to a link":                 {v1.VolumeMount{Name: "v", SubPath: "absChain/file"}, "", "real/file"},
		"expression, absolute link":               {v1.VolumeMount{Name: "v", SubPathExpr: "abs/$(POD)"}, "", "real/name"},
		"out of the volume and back by a link":    {v1.VolumeMount{Name: "v", SubPath: "around/file"}, "", "real/file"},
		"out of the volume and back by two links": {v1.VolumeMount{Name: "v", SubPath: "back/file"}, "", "real/file"},
		"absolute link to a link outside":         {v1.VolumeMount{Name: "v", SubPath: "absOut/x"}, failed, ""},
		"sibling with the prefix":                 {v1.VolumeMount{Name: "v", SubPath: "sibling"}, failed, ""},
		"dangling absolute link":                  {v1.VolumeMount{Name: "v", SubPath: "absDangling/x"}, failed, ""},
		"loop":                                    {v1.VolumeMount{Name: "v", SubPath: "loop/x"}, failed, ""},
		"absolute loop":                           {v1.VolumeMount{Name: "v", SubPath: "absLoop/x"}, failed, ""},
		"node's root":                             {v1.VolumeMount{Name: "v", SubPath: "root"}, failed, ""},
		"magic link":                              {v1.VolumeMount{Name: "v", SubPath: "magic/etc"}, failed, ""},
		"expression":                              {v1.VolumeMount{Name: "v", SubPathExpr: "$(POD)/x"}, "", "name/x"},
		"unknown": {v1.VolumeMount{Name: "v", SubPathExpr: "$(NOPE)/x"},
			"missing value for NOPE", ""},
		"link outside":  {v1.VolumeMount{Name: "v", SubPath: "out"}, failed, ""},
		"below outside": {v1.VolumeMount{Name: "v", SubPath: "out/made"}, failed, ""},
		"up":            {v1.VolumeMount{Name: "v", SubPath: "up"}, failed, ""},
		"dangling":      {v1.VolumeMount{Name: "v", SubPath: "dangling"}, failed, ""},
		"absolute": {v1.VolumeMount{Name: "v", SubPath: "/etc"},
			"error SubPath `/etc` must not be an absolute path", ""},
		"backsteps": {v1.VolumeMount{Name: "v", SubPath: "a/../../b"},
			"unable to provision SubPath `a/../../b`: must not contain '..'", ""},
		"no volume": {v1.VolumeMount{Name: "w"},
			`cannot find volume "w" to mount into container "c"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			container := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{c.mount}}
			got, err := ms.ForContainer(pod, container,
				Options{Env: []*runtimeapi.KeyValue{{Key: "POD", Value: []byte("name")}}})
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Fatalf("got %v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.Stat(filepath.Join(dir, c.same))
			if err != nil {
				t.Fatal(err)
			}
			have, err := os.Stat(got[0].HostPath)
			if err != nil {
				t.Fatal(err)
			}
			if !os.SameFile(want, have) {
				t.Errorf("%s is not %s", got[0].HostPath, c.same)
			}
			if want.IsDir() && c.same != "real" && want.Mode().Perm() != 0o777 {
				t.Errorf("made with mode %v, the volume has 0777", want.Mode())
			}
		})
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("something was made outside: %v %v", entries, err)
	}

	// A restarted container gets the new version of the file.
	container := &v1.Container{Name: "cm", VolumeMounts: []v1.VolumeMount{{Name: "cm", SubPath: "a"}}}
	for _, want := range []string{"1", "2"} {
		o.set("cm", map[string]string{"a": want})
		if err := m.refresh(t.Context(), pod.UID); err != nil {
			t.Fatal(err)
		}
		got, err := ms.ForContainer(pod, container, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if s := read(t, got[0].HostPath); s != want {
			t.Errorf("subPath of a file: %q, want %q", s, want)
		}
	}
}
