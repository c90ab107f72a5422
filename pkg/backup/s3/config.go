// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Names of the environment variables with the settings.
const (
	endpointVariable = "AWS_ENDPOINT_URL"
	regionVariable   = "AWS_REGION"
	idVariable       = "AWS_ACCESS_KEY_ID"
	secretVariable   = "AWS_SECRET_ACCESS_KEY"
	caVariable       = "AWS_CA_BUNDLE"
)

// proxyVariables are the variables with the proxies of HTTP clients.
func proxyVariables() []string {
	return []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"}
}

// Config says how to reach a server, and with which keys.
type Config struct {
	Endpoint *url.URL // without a path
	Region   string
	// CAFile has the authorities of the server's certificate. If it is empty, those of the system count.
	CAFile string
	keys   credentials.Value
}

var (
	errEndpoint = errors.New(endpointVariable + " must have the form https://HOST or https://HOST:PORT")
	errRegion   = errors.New("set " + regionVariable + ", or " + endpointVariable + " for a server that is not Amazon's")
	errHalf     = errors.New("set both " + idVariable + " and " + secretVariable)
	errNoKeys   = errors.New("no keys for the bucket: set " + idVariable + " and " + secretVariable +
		", or write the file ~/.aws/credentials")
	errTemporary = errors.New("the keys are temporary ones, which expire: scheduled backups need permanent keys")
)

// ReadConfig reads the settings from the environment: AWS_ENDPOINT_URL, AWS_REGION, AWS_CA_BUNDLE,
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN. Without keys there, it takes those of the
// profile AWS_PROFILE in the shared credentials file.
func ReadConfig() (*Config, error) {
	c := &Config{Region: cmp.Or(os.Getenv(regionVariable), os.Getenv("AWS_DEFAULT_REGION"))}
	endpoint := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv(endpointVariable))
	if endpoint == "" {
		if c.Region == "" {
			return nil, errRegion
		}
		endpoint = "https://s3." + c.Region + ".amazonaws.com"
	}
	c.Region = cmp.Or(c.Region, "us-east-1") // which servers of others expect, too
	var err error
	if c.Endpoint, err = parseEndpoint(endpoint); err != nil {
		return nil, err
	}
	if file := os.Getenv(caVariable); file != "" {
		if c.CAFile, err = filepath.Abs(file); err != nil {
			return nil, fmt.Errorf("%s: %w", caVariable, err)
		}
	}
	c.keys, err = readKeys()
	return c, err
}

func parseEndpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errEndpoint // the text may have a password
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil ||
		u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		return nil, fmt.Errorf("%q: %w", u.Redacted(), errEndpoint)
	}
	return u, nil
}

func readKeys() (credentials.Value, error) {
	id, secret := os.Getenv(idVariable), os.Getenv(secretVariable)
	if (id == "") != (secret == "") {
		return credentials.Value{}, errHalf
	}
	source := credentials.NewEnvAWS()
	if id == "" {
		source = credentials.NewFileAWSCredentials("", "")
	}
	keys, err := source.GetWithContext(&credentials.CredContext{})
	if err != nil {
		return keys, fmt.Errorf("%w: %w", errNoKeys, err)
	}
	if keys.AccessKeyID == "" {
		return keys, errNoKeys
	}
	return keys, nil
}

// Environment returns the settings as NAME=VALUE, for a process that has neither the environment nor the
// files of this one.
func (c *Config) Environment() ([]string, error) {
	if c.keys.SessionToken != "" {
		return nil, errTemporary
	}
	out := []string{
		endpointVariable + "=" + c.Endpoint.String(), regionVariable + "=" + c.Region,
		idVariable + "=" + c.keys.AccessKeyID, secretVariable + "=" + c.keys.SecretAccessKey,
	}
	if c.CAFile != "" {
		out = append(out, caVariable+"="+c.CAFile)
	}
	for _, name := range proxyVariables() {
		if value := os.Getenv(name); value != "" {
			out = append(out, name+"="+value)
		}
	}
	return out, nil
}
