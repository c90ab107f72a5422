// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Scheme is the beginning of the locations of buckets, s3://BUCKET/PREFIX.
const Scheme = "s3://"

const (
	// partSize is the size of all parts of an upload but the last one. A server accepts 10,000 parts.
	partSize = 8 << 20
	// attempts is how often a request is made until it succeeds.
	attempts = 5
	// abortTimeout is how long an upload that has failed, or that was interrupted, may take to be aborted.
	abortTimeout = 30 * time.Second
)

// Bucket is a place in a bucket: all objects whose key is a prefix followed by a name without a slash.
type Bucket struct {
	client minio.Core
	bucket string
	prefix string // empty, or with a slash at its end
	part   int    // partSize, except in tests
}

var errLocation = errors.New("a location in a bucket has the form s3://BUCKET or s3://BUCKET/PREFIX")

// New returns a place in a bucket. It makes no connection.
func New(location string, c *Config) (*Bucket, error) {
	bucket, prefix, _ := strings.Cut(strings.TrimPrefix(location, Scheme), "/")
	if !strings.HasPrefix(location, Scheme) || bucket == "" {
		return nil, fmt.Errorf("%q: %w", location, errLocation)
	}
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	transport, err := c.transport()
	if err != nil {
		return nil, err
	}
	client, err := minio.NewCore(c.Endpoint.Host, &minio.Options{
		Creds:  credentials.NewStatic(c.keys.AccessKeyID, c.keys.SecretAccessKey, c.keys.SessionToken, c.keys.SignerType),
		Secure: c.Endpoint.Scheme == "https", Region: c.Region, Transport: transport, MaxRetries: attempts,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Endpoint, err)
	}
	return &Bucket{client: *client, bucket: bucket, prefix: prefix, part: partSize}, nil
}

// Path returns the location of a file.
func (b *Bucket) Path(name string) string { return Scheme + b.bucket + "/" + b.prefix + name }

// List calls found for each file. The server sends the list in pages.
func (b *Bucket) List(ctx context.Context, found func(name string, size int64)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for o := range b.client.ListObjectsIter(ctx, b.bucket, minio.ListObjectsOptions{Prefix: b.prefix}) {
		if o.Err != nil {
			return b.explain("list", "", o.Err)
		}
		if name := strings.TrimPrefix(o.Key, b.prefix); name != "" && !strings.Contains(name, "/") {
			found(name, o.Size)
		}
	}
	return ctx.Err()
}

// Remove removes a file. If the bucket keeps versions, the server hides the file instead.
func (b *Bucket) Remove(ctx context.Context, name string) error {
	err := b.client.RemoveObject(ctx, b.bucket, b.prefix+name, minio.RemoveObjectOptions{})
	return b.explain("remove", name, err)
}

// Clean aborts uploads of files with the given suffix that began before the given time.
func (b *Bucket) Clean(ctx context.Context, suffix string, before time.Time) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var errs []error
	for u := range b.client.ListIncompleteUploads(ctx, b.bucket, b.prefix, false) {
		if u.Err != nil {
			return errors.Join(append(errs, b.explain("list interrupted uploads", "", u.Err))...)
		}
		if strings.HasSuffix(u.Key, suffix) && u.UploadID != "" && !u.Initiated.After(before) {
			err := b.client.AbortMultipartUpload(ctx, b.bucket, u.Key, u.UploadID)
			errs = append(errs, b.explain("abort an upload", strings.TrimPrefix(u.Key, b.prefix), err))
		}
	}
	return errors.Join(errs...)
}

// Create makes a file with what write writes. The file is visible when it is complete.
func (b *Bucket) Create(ctx context.Context, name string, write func(io.Writer) error) error {
	id, err := b.client.NewMultipartUpload(ctx, b.bucket, b.prefix+name, minio.PutObjectOptions{
		ContentType: "application/octet-stream",
	})
	if err != nil {
		return b.explain("write", name, err)
	}
	u := &upload{to: b, name: name, id: id}
	err = u.run(ctx, write)
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	abort := b.client.AbortMultipartUpload(ctx, b.bucket, b.prefix+name, id)
	if u.completing && u.complete(ctx) { // only the answer was lost
		return nil
	}
	return errors.Join(err, b.explain("abort the upload", name, abort))
}

// upload is an upload that was begun.
type upload struct {
	to       *Bucket
	name, id string
	parts    []minio.CompletePart
	size     int64
	// completing is true when the server may have put the parts together.
	completing bool
}

// writerFunc is a function that is a writer.
type writerFunc func(p []byte) error

func (f writerFunc) Write(p []byte) (int, error) { return len(p), f(p) }

func (u *upload) run(ctx context.Context, write func(io.Writer) error) error {
	out := bufio.NewWriterSize(writerFunc(func(p []byte) error { return u.send(ctx, p) }), u.to.part)
	if err := write(out); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	u.completing = true
	_, err := u.to.client.CompleteMultipartUpload(ctx, u.to.bucket, u.to.prefix+u.name, u.id, u.parts,
		minio.PutObjectOptions{})
	return u.to.explain("write", u.name, err)
}

// send sends a part, with hashes by which the server notices damage. A bucket that locks its objects demands MD5.
func (u *upload) send(ctx context.Context, p []byte) error {
	sum, check := sha256.Sum256(p), md5.Sum(p)
	part, err := u.to.client.PutObjectPart(ctx, u.to.bucket, u.to.prefix+u.name, u.id, len(u.parts)+1,
		bytes.NewReader(p), int64(len(p)), minio.PutObjectPartOptions{
			Md5Base64: base64.StdEncoding.EncodeToString(check[:]), Sha256Hex: hex.EncodeToString(sum[:]),
			DisableContentSha256: true, // Sha256Hex signs the part as a whole, instead of piece by piece
		})
	if err != nil {
		return u.to.explain("write", u.name, err)
	}
	u.parts = append(u.parts, minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag})
	u.size += int64(len(p))
	return nil
}

// complete reports whether the file is in the bucket, with the right size.
func (u *upload) complete(ctx context.Context) (ok bool) {
	err := u.to.List(ctx, func(name string, size int64) { ok = ok || name == u.name && size == u.size })
	return ok && err == nil
}
