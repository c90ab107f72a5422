// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

// maxWindow is the maximum memory that decompression may need for the data it refers to.
const maxWindow = 32 << 20

// Reader reads a backup.
type Reader struct {
	// Manifest describes the backup. It is authentic, but the files that it announces may be damaged.
	Manifest *Manifest
	packed   *zstd.Decoder
	archive  *tar.Reader
}

// Open reads the manifest of a backup. The caller must close the reader.
func Open(in io.Reader, with ...age.Identity) (*Reader, error) {
	sealed, err := age.Decrypt(in, with...)
	if wrong := (*age.NoIdentityMatchError)(nil); errors.As(err, &wrong) {
		return nil, ErrKey
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	packed, err := zstd.NewReader(sealed, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	r := &Reader{packed: packed, archive: tar.NewReader(packed)}
	if r.Manifest, err = r.readManifest(); err != nil {
		packed.Close()
		return nil, err
	}
	return r, nil
}

// Close frees memory. It does not close the file.
func (r *Reader) Close() { r.packed.Close() }

func (r *Reader) readManifest() (*Manifest, error) {
	h, err := r.archive.Next()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if h.Name != manifestName || h.Typeflag != tar.TypeReg || h.Size > maxManifest {
		return nil, fmt.Errorf("%w: no manifest", ErrDamaged)
	}
	data, err := io.ReadAll(r.archive)
	if err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", ErrDamaged, err)
	}
	return decodeManifest(data)
}

// Extract writes each file to the writer that place returns for it, and closes this writer. It returns nil
// if all files were written, their hashes are right, and the backup ends after them.
func (r *Reader) Extract(place func(Entry) (io.WriteCloser, error)) error {
	for _, e := range r.Manifest.Files {
		h, err := r.archive.Next()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if h.Name != e.Name || h.Typeflag != tar.TypeReg || h.Size != e.Size {
			return fmt.Errorf("%w: it has %q instead of %q", ErrDamaged, h.Name, e.Name)
		}
		to, err := place(e)
		if err != nil {
			return err
		}
		if err := errors.Join(r.extract(to, e), to.Close()); err != nil {
			return err
		}
	}
	if _, err := r.archive.Next(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: more files than in the manifest", ErrDamaged)
	}
	// The end of the sealed data proves that the file was not cut off.
	if n, err := io.Copy(io.Discard, io.LimitReader(r.packed, maxTrailer)); err != nil || n == maxTrailer {
		return fmt.Errorf("%w: its end is missing or too long: %w", ErrDamaged, err)
	}
	return nil
}

// maxTrailer is the maximum number of bytes after the last file.
const maxTrailer = 1 << 20

func (r *Reader) extract(to io.Writer, e Entry) error {
	h := sha256.New()
	both := &tee{first: to, second: h}
	if _, err := io.Copy(both, r.archive); err != nil {
		if both.failed {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		return fmt.Errorf("%w: %s: %w", ErrDamaged, e.Name, err)
	}
	if hex.EncodeToString(h.Sum(nil)) != e.SHA256 {
		return fmt.Errorf("%w: the hash of %s is wrong", ErrDamaged, e.Name)
	}
	return nil
}

// tee writes to two writers, and remembers whether one of them failed.
type tee struct {
	first, second io.Writer
	failed        bool
}

func (t *tee) Write(p []byte) (int, error) {
	n, err := t.first.Write(p)
	if err != nil {
		t.failed = true
		return n, err
	}
	return t.second.Write(p)
}
