// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"keelson.dev/apiserver/leaktest"
)

func TestMain(m *testing.M) {
	minio.DefaultRetryUnit = time.Millisecond
	leaktest.Main(m)
}
