// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"errors"
	"io"

	"github.com/minio/minio-go/v7"
)

// Open opens a file. If the connection breaks while the file is read, the reader goes on over another one.
func (b *Bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	body, info, _, err := b.client.GetObject(ctx, b.bucket, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, b.explain("read", name, err)
	}
	return &download{body: body, size: info.Size, reopen: func(offset int64) (io.ReadCloser, error) {
		var o minio.GetObjectOptions
		if err := o.SetMatchETag(info.ETag); err != nil {
			return nil, err
		}
		if offset > 0 {
			if err := o.SetRange(offset, 0); err != nil {
				return nil, err
			}
		}
		body, _, _, err := b.client.GetObject(ctx, b.bucket, b.prefix+name, o)
		return body, b.explain("read", name, err)
	}}, nil
}

// download reads a file.
type download struct {
	body   io.ReadCloser
	reopen func(offset int64) (io.ReadCloser, error)
	// offset bytes of size were read.
	offset, size int64
	failures     int // since the last byte
}

func (d *download) Read(p []byte) (int, error) {
	for {
		n, err := d.body.Read(p)
		if d.offset += int64(n); n > 0 || err == nil {
			d.failures = 0
			return n, nil // an error comes again
		}
		if errors.Is(err, io.EOF) && d.offset >= d.size {
			return 0, io.EOF
		}
		if d.failures++; d.failures >= attempts {
			return 0, errors.Join(io.ErrUnexpectedEOF, err)
		}
		body, openErr := d.reopen(d.offset)
		if openErr != nil {
			return 0, openErr
		}
		_ = d.body.Close() // it has failed already
		d.body = body
	}
}

// Close ends the download.
func (d *download) Close() error { return d.body.Close() }
