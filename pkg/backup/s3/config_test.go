// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReadConfig reads settings from the environment and from the shared credentials file, and passes them on.
func TestReadConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	const text = "[default]\naws_access_key_id = fid\naws_secret_access_key = fsecret\n" +
		"[temporary]\naws_access_key_id = tid\naws_secret_access_key = tsecret\naws_session_token = token\n" +
		"[half]\naws_access_key_id = hid\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const keys = " AWS_ACCESS_KEY_ID=id AWS_SECRET_ACCESS_KEY=secret"
	const shared = " AWS_SHARED_CREDENTIALS_FILE="
	for name, tc := range map[string]struct {
		in, want string
		err      error
	}{
		"Amazon": {
			in:   "AWS_REGION=eu-west-1" + keys,
			want: "AWS_ENDPOINT_URL=https://s3.eu-west-1.amazonaws.com AWS_REGION=eu-west-1" + keys,
		},
		"another server": {
			in:   "AWS_ENDPOINT_URL=https://s3.example.com:9000" + keys,
			want: "AWS_ENDPOINT_URL=https://s3.example.com:9000 AWS_REGION=us-east-1" + keys,
		},
		"more specific names": {
			in:   "AWS_ENDPOINT_URL=https://a AWS_ENDPOINT_URL_S3=http://b AWS_DEFAULT_REGION=r" + keys,
			want: "AWS_ENDPOINT_URL=http://b AWS_REGION=r" + keys,
		},
		"authority and proxy": {
			in: "AWS_ENDPOINT_URL=https://a AWS_CA_BUNDLE=/ca no_proxy=x HTTPS_PROXY=http://p" + keys,
			want: "AWS_ENDPOINT_URL=https://a AWS_REGION=us-east-1" + keys +
				" AWS_CA_BUNDLE=/ca HTTPS_PROXY=http://p no_proxy=x",
		},
		"credentials file": {
			in: "AWS_REGION=r" + shared + file,
			want: "AWS_ENDPOINT_URL=https://s3.r.amazonaws.com AWS_REGION=r AWS_ACCESS_KEY_ID=fid " +
				"AWS_SECRET_ACCESS_KEY=fsecret",
		},
		"temporary keys":         {in: "AWS_REGION=r AWS_PROFILE=temporary" + shared + file, err: errTemporary},
		"half a profile":         {in: "AWS_REGION=r AWS_PROFILE=half" + shared + file, err: errNoKeys},
		"no profile":             {in: "AWS_REGION=r AWS_PROFILE=none" + shared + file, err: errNoKeys},
		"no file":                {in: "AWS_REGION=r" + shared + file + ".none", err: errNoKeys},
		"no region":              {in: keys, err: errRegion},
		"no secret":              {in: "AWS_REGION=r AWS_ACCESS_KEY_ID=id", err: errHalf},
		"no key ID":              {in: "AWS_REGION=r AWS_SECRET_ACCESS_KEY=secret", err: errHalf},
		"endpoint with a path":   {in: "AWS_ENDPOINT_URL=https://a/b" + keys, err: errEndpoint},
		"endpoint with password": {in: "AWS_ENDPOINT_URL=https://u:p@a" + keys, err: errEndpoint},
		"host as endpoint":       {in: "AWS_ENDPOINT_URL=a:9000" + keys, err: errEndpoint},
	} {
		t.Run(name, func(t *testing.T) {
			for _, e := range os.Environ() {
				if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "AWS_") || slices.Contains(proxyVariables(), name) {
					t.Setenv(name, "")
				}
			}
			t.Setenv("HOME", t.TempDir())
			for pair := range strings.FieldsSeq(tc.in) {
				name, value, _ := strings.Cut(pair, "=")
				t.Setenv(name, value)
			}
			c, err := ReadConfig()
			var got []string
			if err == nil {
				got, err = c.Environment()
			}
			if !errors.Is(err, tc.err) || !slices.Equal(got, strings.Fields(tc.want)) {
				t.Errorf("%q, %v; want %q, %v", got, err, tc.want, tc.err)
			}
		})
	}
}
