// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"keelson.dev/keelson/pkg/backup/s3/s3test"
)

// locations runs a test with an empty directory and with an empty place in a bucket.
func locations(t *testing.T, test func(t *testing.T, at string, in Location)) {
	t.Helper()
	open := func(t *testing.T, at string) {
		t.Helper()
		in, err := At(at)
		if err != nil {
			t.Fatal(err)
		}
		test(t, at, in)
	}
	t.Run("directory", func(t *testing.T) { open(t, filepath.Join(t.TempDir(), "some", "dir")) })
	t.Run("bucket", func(t *testing.T) {
		s3test.Start(t)
		open(t, "s3://"+s3test.Bucket+"/some/dir")
	})
}

// put makes a file.
func put(t *testing.T, in Location, name, content string) {
	t.Helper()
	err := in.Create(t.Context(), name, func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// read reads the file with a path.
func read(ctx context.Context, path string) (string, error) {
	in, err := OpenPath(ctx, path)
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(in)
	return string(content), errors.Join(err, in.Close())
}

// TestLocation lists a location with backups of two clusters and other files, and removes old ones.
func TestLocation(t *testing.T) {
	locations(t, func(t *testing.T, at string, in Location) {
		ctx := t.Context()
		now := time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC)
		if _, ok, err := Newest(ctx, in, "a", "m1", now); ok || err != nil {
			t.Error("nothing was written yet:", ok, err)
		}
		names := []string{"README", "a.keelson-backup", "-20261130T210000Z.keelson-backup", "a-20261130T210000Z"}
		for i := range 4 {
			names = append(names, Name("a", "m1", now.Add(time.Duration(i)*time.Hour)))
		}
		names = append(names, Name("a-b", "m1", now), Name("a-b", "m1", now.Add(2*time.Hour)))
		for _, name := range names {
			put(t, in, name, "content of "+name)
		}
		all, err := List(ctx, in)
		if err != nil || len(all) != 6 || !slices.IsSortedFunc(all, func(x, y Listed) int { return y.Time.Compare(x.Time) }) {
			t.Fatal(all, err)
		}
		for _, l := range all {
			content, err := read(ctx, l.Path)
			if err != nil || content != "content of "+Name(l.Cluster, l.Node, l.Time) || l.Size != int64(len(content)) ||
				l.Path != at+"/"+Name(l.Cluster, l.Node, l.Time) {
				t.Errorf("%+v: %q, %v", l, content, err)
			}
		}
		if _, err := read(ctx, at+"/none"); !errors.Is(err, fs.ErrNotExist) {
			t.Error("a file that does not exist:", err)
		}
		if l, ok, err := Newest(ctx, in, "a-b", "m1", now.Add(2*time.Hour)); !ok || err != nil || l.Cluster != "a-b" ||
			!l.Time.Equal(now.Add(2*time.Hour)) {
			t.Error(l, ok, err)
		}
		if l, ok, err := Newest(ctx, in, "a-b", "m1", now.Add(time.Hour)); !ok || err != nil || !l.Time.Equal(now) {
			t.Error("the newest one is in the future:", l, ok, err)
		}
		removed, err := Prune(ctx, in, "a", "m1", 1, now.Add(2*time.Hour)) // one of the four is in the future
		want := []string{in.Path(Name("a", "m1", now.Add(time.Hour))), in.Path(Name("a", "m1", now))}
		if err != nil || !slices.Equal(removed, want) {
			t.Errorf("%v, %v; want %v", removed, err, want)
		}
		left := 0
		if err := in.List(ctx, func(string, int64) { left++ }); err != nil || left != len(names)-2 {
			t.Error(left, err)
		}
	})
}

// TestNodes checks that the backups of each node are kept and removed by themselves, and that those of earlier
// versions, whose names have no node, are listed and stay.
func TestNodes(t *testing.T) {
	locations(t, func(t *testing.T, _ string, in Location) {
		now := time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC)
		const old = "a-20261130T203000Z.keelson-backup"
		put(t, in, old, "x")
		for i := range 3 {
			for _, node := range []string{"m1", "m2.example.com", "m-3"} {
				put(t, in, Name("a", node, now.Add(-time.Duration(i)*time.Hour)), "x")
			}
		}
		all, err := List(t.Context(), in)
		if err != nil || len(all) != 10 || all[3].Path != in.Path(old) || all[3].Cluster != "a" || all[3].Node != "" {
			t.Fatal(all, err)
		}
		removed, err := Prune(t.Context(), in, "a", "m2.example.com", 2, now)
		want := []string{in.Path(Name("a", "m2.example.com", now.Add(-2*time.Hour)))}
		if err != nil || !slices.Equal(removed, want) {
			t.Errorf("%v, %v; want %v", removed, err, want)
		}
		if l, ok, err := Newest(t.Context(), in, "a", "m-3", now); !ok || err != nil || l.Node != "m-3" {
			t.Error(l, ok, err)
		}
		if l, ok, err := Newest(t.Context(), in, "a", "m4", now); ok || err != nil {
			t.Error("a node without backups:", l, err)
		}
	})
}

// TestFailedWrite checks that a file is not visible if writing it fails.
func TestFailedWrite(t *testing.T) {
	locations(t, func(t *testing.T, _ string, in Location) {
		failed := errors.New("failed")
		err := in.Create(t.Context(), "f.keelson-backup", func(w io.Writer) error {
			_, err := w.Write([]byte("half of it"))
			return errors.Join(err, failed)
		})
		if !errors.Is(err, failed) {
			t.Error(err)
		}
		if err := in.List(t.Context(), func(name string, _ int64) { t.Error("there is", name) }); err != nil {
			t.Error(err)
		}
	})
}

// TestWriteTwice checks that a backup is complete, can be read, and is not overwritten.
func TestWriteTwice(t *testing.T) {
	locations(t, func(t *testing.T, at string, in Location) {
		id := key(t)
		store := strings.Repeat("store", 10)
		path, err := Write(t.Context(), in, manifest(), strings.NewReader(store), nil, id.Recipient())
		if want := at + "/c_m1-20261130T210000Z.keelson-backup"; err != nil || path != want {
			t.Fatalf("%s, %v; want %s", path, err, want)
		}
		data, err := read(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if _, files, err := unseal([]byte(data), id); err != nil || files[StoreName] != store {
			t.Errorf("%q, %v", files, err)
		}
		_, err = Write(t.Context(), in, manifest(), strings.NewReader("2"), nil, id.Recipient())
		if again, readErr := read(t.Context(), path); !errors.Is(err, fs.ErrExist) || readErr != nil || again != data {
			t.Error(err, readErr, again == data)
		}
	})
}

// TestPruneDirectory removes files that an interrupted backup has left.
func TestPruneDirectory(t *testing.T) {
	dir := t.TempDir()
	in := Directory(dir)
	if _, err := List(t.Context(), Directory(filepath.Join(dir, "none"))); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a directory that does not exist was listed:", err)
	}
	now := time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC)
	for name, age := range map[string]time.Duration{
		".partial-1.keelson-backup": partialAge, ".partial-2.keelson-backup": partialAge - time.Minute,
		".partial-3": partialAge,
	} {
		put(t, in, name, "x")
		if err := os.Chtimes(in.Path(name), now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if removed, err := Prune(t.Context(), in, "a", "m1", 1, now); err != nil || len(removed) != 0 {
		t.Error(removed, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != ".partial-2.keelson-backup" {
		t.Error(entries, err)
	}
}

// TestPruneWithoutRight checks that a backup that the server protects does not prevent the removal of the others.
func TestPruneWithoutRight(t *testing.T) {
	s := s3test.Start(t)
	in, err := At("s3://" + s3test.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC)
	var names []string
	for i := range 4 {
		names = append(names, Name("a", "m1", now.Add(-time.Duration(i)*time.Hour)))
		put(t, in, names[i], "x")
	}
	s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || !strings.HasSuffix(r.URL.Path, names[2]) {
			return false
		}
		s3test.Answer(w, http.StatusForbidden, "AccessDenied")
		return true
	})
	removed, err := Prune(t.Context(), in, "a", "m1", 1, now)
	want := []string{"s3://backups/" + names[1], "s3://backups/" + names[3]}
	if err == nil || !strings.Contains(err.Error(), "remove s3://backups/"+names[2]+": the keys do not permit this") ||
		!slices.Equal(removed, want) {
		t.Errorf("%v, %v; want %v", removed, err, want)
	}
}

// TestLargeBackup writes a backup of several parts into a bucket, and reads it.
func TestLargeBackup(t *testing.T) {
	s3test.Start(t)
	in, err := At("s3://" + s3test.Bucket + "/x")
	if err != nil {
		t.Fatal(err)
	}
	id := key(t)
	store := make([]byte, 20<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(store) // zstd cannot compress it
	path, err := Write(t.Context(), in, manifest(), bytes.NewReader(store), nil, id.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	data, err := read(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, files, err := unseal([]byte(data), id); err != nil || files[StoreName] != string(store) {
		t.Errorf("%d bytes, %v", len(files[StoreName]), err)
	}
}

// TestOpenPathWithoutName checks that a bucket without the name of a backup is not taken for a local file.
func TestOpenPathWithoutName(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:1")
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	for _, path := range []string{"s3://", "s3://backups"} {
		if _, err := OpenPath(t.Context(), path); err == nil || !strings.Contains(err.Error(), "s3://BUCKET") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
