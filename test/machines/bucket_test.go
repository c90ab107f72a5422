// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"net/http"
	"os"

	"keelson.dev/keelson/pkg/backup/s3/s3test"
)

const (
	// bucketServer is the environment variable that makes this program serve a bucket instead of testing. Its
	// value is the address.
	bucketServer  = "KEELSON_BUCKET_SERVER"
	bucketAddress = "10.60.0.1:9000" // at the desk
	bucketSecret  = "key-of-the-bucket"
)

// serveBucket serves a bucket until the process ends.
func serveBucket(address string) error {
	s, err := s3test.New()
	if err != nil {
		return err
	}
	return http.ListenAndServe(address, s)
}

// startBucket runs a server with a bucket at the desk, and sets the variables with which ctl finds it.
func (c *cell) startBucket() {
	c.Helper()
	self, err := os.Executable()
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context()))
	ended := make(chan error, 1)
	go func() {
		_, err := c.lab.Run(ctx, "env", bucketServer+"="+bucketAddress, self)
		ended <- err
	}()
	c.Cleanup(func() {
		cancel()
		c.Log("the server of the bucket has ended:", <-ended)
	})
	c.env = "export AWS_ENDPOINT_URL=http://desk:9000 AWS_ACCESS_KEY_ID=id AWS_SECRET_ACCESS_KEY=" + bucketSecret + "\n"
}
