// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"keelson.dev/keelson/pkg/backup/s3/s3test"
)

// size is the size of files with several parts.
const (
	part = 1 << 20
	size = 2*part + 12_345
)

// open returns a place in the server's bucket.
func open(t *testing.T) *Bucket {
	t.Helper()
	c, err := ReadConfig()
	if err != nil {
		t.Fatal(err)
	}
	b, err := New("s3://"+s3test.Bucket+"/some/dir/", c)
	if err != nil {
		t.Fatal(err)
	}
	b.part = part
	return b
}

// data returns bytes that do not repeat, so that a mistake in their order changes them.
func data(size int) []byte {
	out := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(out)
	return out
}

// put makes a file, in pieces as sealed backups are written.
func put(ctx context.Context, b *Bucket, name string, content []byte) error {
	return b.Create(ctx, name, func(w io.Writer) error {
		for piece := range slices.Chunk(content, 64<<10) {
			if _, err := w.Write(piece); err != nil {
				return err
			}
		}
		return nil
	})
}

// get reads a file.
func get(t *testing.T, b *Bucket, name string) ([]byte, error) {
	t.Helper()
	in, err := b.Open(t.Context(), name)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(in)
	return content, errors.Join(err, in.Close())
}

// names returns the names of all files.
func names(t *testing.T, b *Bucket) (out []string) {
	t.Helper()
	if err := b.List(t.Context(), func(name string, _ int64) { out = append(out, name) }); err != nil {
		t.Fatal(err)
	}
	return out
}

// uploads returns the number of uploads that are not complete.
func uploads(t *testing.T, b *Bucket) (n int) {
	t.Helper()
	for u := range b.client.ListIncompleteUploads(t.Context(), b.bucket, "", true) {
		if u.Err != nil {
			t.Fatal(u.Err)
		}
		n++
	}
	return n
}

// Requests by what they do.
func isPart(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.Query().Has("partNumber")
}
func isComplete(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
}
func isGet(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/f")
}
func isDelete(r *http.Request) bool { return r.Method == http.MethodDelete }
func isAny(*http.Request) bool      { return true }

// TestUpload breaks uploads in many ways. The file is either complete, or it is not visible and no upload remains.
func TestUpload(t *testing.T) {
	slow := func(w http.ResponseWriter, _ *http.Request) {
		s3test.Answer(w, http.StatusServiceUnavailable, "SlowDown")
	}
	answer := func(status int, code string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { s3test.Answer(w, status, code) }
	}
	cut := func(_ http.ResponseWriter, r *http.Request) { s3test.CutRequest(r, 100_000) }
	const always = 1000
	for name, tc := range map[string]struct {
		match func(*http.Request) bool
		times int64
		fault func(http.ResponseWriter, *http.Request)
		want  string // in the error, or empty if the upload succeeds
	}{
		"no fault":              {isAny, 0, slow, ""},
		"cut parts":             {isPart, 3, cut, ""},
		"busy":                  {isAny, 4, slow, ""},
		"all parts are cut":     {isPart, always, cut, "write s3://backups/some/dir/f: "},
		"always busy":           {isPart, always, slow, "SlowDown, HTTP 503"},
		"no right to write":     {isPart, always, answer(403, "AccessDenied"), errDenied.Error()},
		"no right to begin":     {isAny, 1, answer(403, "AccessDenied"), errDenied.Error()},
		"unknown key":           {isAny, 1, answer(403, "InvalidAccessKeyId"), errKeys.Error()},
		"wrong secret":          {isAny, 1, answer(403, "SignatureDoesNotMatch"), errKeys.Error()},
		"clock":                 {isAny, 1, answer(403, "RequestTimeTooSkewed"), errClock.Error()},
		"region":                {isAny, 1, answer(400, "AuthorizationHeaderMalformed"), errRegionOf.Error()},
		"damaged part":          {isPart, 1, answer(400, "BadDigest"), "BadDigest"},
		"completion is refused": {isComplete, always, answer(400, "InvalidPart"), "InvalidPart"},
	} {
		t.Run(name, func(t *testing.T) {
			s := s3test.Start(t)
			b := open(t)
			var n atomic.Int64
			s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
				if !tc.match(r) || n.Add(1) > tc.times {
					return false
				}
				tc.fault(w, r)
				return true
			})
			content := data(size)
			err := put(t.Context(), b, "f", content)
			s.Fault(nil)
			if left := uploads(t, b); left != 0 {
				t.Errorf("%d uploads remain", left)
			}
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) || len(names(t, b)) > 0 {
					t.Errorf("%v, want %q; the bucket has %q", err, tc.want, names(t, b))
				}
				return
			}
			if got, readErr := get(t, b, "f"); err != nil || readErr != nil || !bytes.Equal(got, content) {
				t.Errorf("%v; read %d bytes: %v", err, len(got), readErr)
			}
		})
	}
}

// TestLostAnswer loses the answer to the request that completes an upload: the connection breaks before or in the
// answer, or the context ends. The file is complete. If the client repeats the request, that fails, because the
// upload does not exist any more.
func TestLostAnswer(t *testing.T) {
	for name, bytes := range map[string]int{"no answer": 0, "cut answer": 1, "end of the context": -1} {
		s := s3test.Start(t)
		b := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		var once atomic.Bool
		s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
			if isComplete(r) && once.CompareAndSwap(false, true) {
				if bytes >= 0 {
					s.CutAnswer(w, r, bytes)
				}
				s.Next.ServeHTTP(httptest.NewRecorder(), r)
				cancel()
				<-r.Context().Done() // the client has closed the connection
				return true
			}
			return false
		})
		err := put(ctx, b, "f", data(100))
		cancel()
		if err != nil || !slices.Equal(names(t, b), []string{"f"}) {
			t.Errorf("%s: %v; files %q", name, err, names(t, b))
		}
	}
}

// TestInterruptedUpload ends uploads from within: by an error of the caller, and by the end of the context.
func TestInterruptedUpload(t *testing.T) {
	s3test.Start(t)
	b := open(t)
	failed := errors.New("failed")
	for name, tc := range map[string]struct {
		write func(w io.Writer, cancel func()) error
		want  error
	}{
		"error": {func(w io.Writer, _ func()) error {
			_, err := w.Write(data(size))
			return errors.Join(err, failed)
		}, failed},
		"end of the context": {func(w io.Writer, cancel func()) error {
			cancel()
			_, err := w.Write(data(size))
			return err
		}, context.Canceled},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		err := b.Create(ctx, "f", func(w io.Writer) error { return tc.write(w, cancel) })
		cancel()
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		if left := uploads(t, b); left != 0 || len(names(t, b)) != 0 {
			t.Errorf("%s: %d uploads, files %q", name, left, names(t, b))
		}
	}
}

// TestDownload breaks downloads. The reader goes on where it was, unless the file has changed.
func TestDownload(t *testing.T) {
	s := s3test.Start(t)
	b := open(t)
	content := data(300_000)
	if err := put(t.Context(), b, "f", content); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		times int64
		bytes int
		want  error
	}{
		"one cut": {times: 1, bytes: 100_000}, "many cuts": {times: 20, bytes: 10_000},
		"no byte at first": {times: attempts - 1, bytes: 0},
		"no byte":          {times: 1000, bytes: 0, want: io.ErrUnexpectedEOF},
	} {
		var n atomic.Int64
		s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
			if isGet(r) && n.Add(1) <= tc.times {
				w.Header().Set("Connection", "close")
				s.CutAnswer(w, r, tc.bytes)
			}
			return false
		})
		got, err := get(t, b, "f")
		if !errors.Is(err, tc.want) || err == nil && !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	s.Fault(nil)
	_, err := get(t, b, "none")
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "s3://backups/some/dir/none") {
		t.Error("a file that does not exist:", err)
	}
}

// TestChangedDownload replaces a file while it is read.
func TestChangedDownload(t *testing.T) {
	s := s3test.Start(t)
	b := open(t)
	if err := put(t.Context(), b, "f", data(300_000)); err != nil {
		t.Fatal(err)
	}
	var once atomic.Bool
	s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
		if isGet(r) && once.CompareAndSwap(false, true) {
			s.CutAnswer(w, r, 1000)
		}
		if isGet(r) && r.Header.Get("If-Match") == "" {
			t.Error("the reader takes any content after an interruption")
		}
		if isGet(r) {
			s3test.Answer(w, http.StatusPreconditionFailed, minio.PreconditionFailed)
			return true
		}
		return false
	})
	if _, err := get(t, b, "f"); err == nil || !strings.Contains(err.Error(), minio.PreconditionFailed) {
		t.Error(err)
	}
}

// TestPages lists more objects than a server sends in one answer, among foreign ones.
func TestPages(t *testing.T) {
	s := s3test.Start(t)
	b := open(t)
	var want []string
	for i := range 2100 {
		want = append(want, fmt.Sprintf("f%04d", i))
	}
	keys := []string{"f", "some/f", "some/dir", "some/dir2/f", "some/dir/sub/f", "some/dir/"}
	for _, name := range want {
		keys = append(keys, "some/dir/"+name)
	}
	for _, key := range keys {
		if _, err := s.Objects.PutObject(s3test.Bucket, key, nil, strings.NewReader(""), 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	got := names(t, b)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d names, want %d", len(got), len(want))
	}
	s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
		if !r.URL.Query().Has("continuation-token") {
			return false
		}
		s3test.Answer(w, http.StatusForbidden, minio.AccessDenied)
		return true
	})
	if err := b.List(t.Context(), func(string, int64) {}); !errors.Is(err, errDenied) {
		t.Error("the second page fails:", err)
	}
}

// TestClean aborts old uploads of this place, and no others.
func TestClean(t *testing.T) {
	s := s3test.Start(t)
	b := open(t)
	for _, key := range []string{"some/dir/a.x", "some/dir/b.x", "some/dir/c.y", "some/dir/sub/d.x", "e.x"} {
		if _, err := b.client.NewMultipartUpload(t.Context(), s3test.Bucket, key, minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		before time.Time
		left   int
	}{{time.Now().Add(-time.Hour), 5}, {time.Now().Add(time.Hour), 3}} {
		if err := b.Clean(t.Context(), ".x", tc.before); err != nil || uploads(t, b) != tc.left {
			t.Errorf("%v, %d uploads, want %d", err, uploads(t, b), tc.left)
		}
	}
	s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("uploads") || isDelete(r) {
			s3test.Answer(w, http.StatusForbidden, minio.AccessDenied)
			return true
		}
		return false
	})
	if err := b.Clean(t.Context(), ".x", time.Now()); !errors.Is(err, errDenied) {
		t.Error("no right to list uploads:", err)
	}
	if err := b.Remove(t.Context(), "f"); !errors.Is(err, errDenied) {
		t.Error("no right to remove:", err)
	}
}

// TestUnreachable uses buckets that do not exist, and servers that do not answer.
func TestUnreachable(t *testing.T) {
	s := s3test.Start(t)
	c, err := ReadConfig()
	if err != nil {
		t.Fatal(err)
	}
	list := func(location string) error {
		b, err := New(location, c)
		if err != nil {
			return err
		}
		if err := put(t.Context(), b, "f", data(1)); err == nil {
			t.Error("written to", location)
		}
		return b.List(t.Context(), func(string, int64) {})
	}
	if err := list("s3://none"); !errors.Is(err, errBucket) || errors.Is(err, fs.ErrNotExist) {
		t.Error("a bucket that does not exist:", err)
	}
	for _, location := range []string{"s3://", "s3:///prefix", "backups"} {
		if _, err := New(location, c); !errors.Is(err, errLocation) {
			t.Errorf("%s: %v", location, err)
		}
	}
	s.Close()
	if err := list("s3://backups"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Error("no server:", err)
	}
}

// TestAuthority checks the certificate of the server.
func TestAuthority(t *testing.T) {
	s := s3test.StartTLS(t)
	if err := open(t).List(t.Context(), func(string, int64) {}); !errors.Is(err, errAuthority) {
		t.Error("unknown authority:", err)
	}
	dir := t.TempDir()
	right, wrong := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "wrong")
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := errors.Join(os.WriteFile(right, encoded, 0o600), os.WriteFile(wrong, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv(caVariable, right)
	b := open(t)
	content := data(size)
	if err := put(t.Context(), b, "f", content); err != nil {
		t.Fatal(err)
	}
	if got, err := get(t, b, "f"); err != nil || !bytes.Equal(got, content) {
		t.Error(len(got), err)
	}
	for _, file := range []string{wrong, filepath.Join(dir, "none")} {
		t.Setenv(caVariable, file)
		c, err := ReadConfig()
		if err == nil {
			_, err = New("s3://backups", c)
		}
		if err == nil || !strings.Contains(err.Error(), caVariable) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
