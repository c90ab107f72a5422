// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"

	"github.com/minio/minio-go/v7"
)

var (
	errRejected  = errors.New("the server has rejected the request")
	errBucket    = errors.New("the bucket does not exist")
	errDenied    = errors.New("the keys do not permit this")
	errKeys      = errors.New("the server refuses the keys: check " + idVariable + " and " + secretVariable)
	errClock     = errors.New("the clock of this machine differs too much from that of the server")
	errRegionOf  = errors.New("the bucket is in another region: check " + regionVariable)
	errAuthority = errors.New("the authority of the server's certificate is unknown: name the file with it in " +
		caVariable)
)

// reason returns what an administrator has to change, by the code in the server's answer.
func reason(code string) error {
	switch code {
	case minio.NoSuchBucket, minio.InvalidBucketName:
		return errBucket
	case minio.NoSuchKey:
		return fs.ErrNotExist
	case minio.AccessDenied:
		return errDenied
	case minio.InvalidAccessKeyID, minio.SignatureDoesNotMatch, "ExpiredToken", "InvalidToken":
		return errKeys
	case minio.RequestTimeTooSkewed:
		return errClock
	case minio.AuthorizationHeaderMalformed, minio.InvalidRegion, "PermanentRedirect":
		return errRegionOf
	}
	return errRejected
}

// explain returns an error with what was done, with which file, and what an administrator has to change. It
// returns nil if err is nil.
func (b *Bucket) explain(what, name string, err error) error {
	if err == nil {
		return nil
	}
	place := b.Path(name)
	answer := minio.ErrorResponse{}
	if !errors.As(err, &answer) {
		if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
			err = fmt.Errorf("%w: %w", errAuthority, err)
		}
		return fmt.Errorf("%s %s: %w", what, place, err)
	}
	return fmt.Errorf("%s %s: %w: %s (%s, HTTP %d)", what, place, reason(answer.Code), answer.Error(), answer.Code,
		answer.StatusCode)
}
