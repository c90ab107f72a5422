// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson.dev/keelson/pkg/machine"
)

// execute runs ctl with arguments, as Run does but without ending the process, and returns its output.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := Command(append([]string{"ctl"}, args...), strings.NewReader("from stdin\n"), &out, &out)
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestTokenFile checks where "ctl join" takes its token from.
func TestTokenFile(t *testing.T) {
	file, empty := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "empty")
	for path, text := range map[string]string{file: " abc123.x\n", empty: "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		file, want string
		err        error
	}{
		"file":    {file, "abc123.x", nil},
		"stdin":   {"-", "from stdin", nil},
		"empty":   {empty, "", errEmptyToken},
		"missing": {file + "x", "", os.ErrNotExist},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readToken(tc.file, strings.NewReader("from stdin\n"))
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	hash := "--ca-cert-hash=sha256:" + strings.Repeat("0", 64)
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"both": {[]string{"--token=a", "--token-file=-"}, "none of the others can be"},
		"none": {nil, errNoToken.Error()},
		"file": {[]string{"--token-file=" + empty}, errEmptyToken.Error()},
		"token of a control plane": {[]string{"--token=abc123.0123456789abcdef." + strings.Repeat("0", 64)},
			errTokenOfControlPlane.Error()},
		"token of a node": {[]string{"--token=abc123.0123456789abcdef", "--control-plane"}, errTokenOfNode.Error()},
	} {
		t.Run("join, "+name, func(t *testing.T) {
			_, err := execute(t, append([]string{"join", "192.0.2.1:6443", hash}, tc.args...)...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// TestUseToken checks that the API server does not see the third part of a token.
func TestUseToken(t *testing.T) {
	i := &machine.Invitation{Token: "abc123.0123456789abcdef." + strings.Repeat("0", 64)}
	token, err := useToken(i, true)
	if err != nil || i.Token != "abc123.0123456789abcdef" || token.Join != i.Token {
		t.Errorf("%+v, %v, %v", i, token, err)
	}
	i = &machine.Invitation{Token: "abc123.0123456789abcdef.0123"}
	if _, err := useToken(i, false); !errors.Is(err, errTokenOfControlPlane) {
		t.Errorf("a part of a third part: %v", err)
	}
	i = &machine.Invitation{Token: "abc123.0123456789abcdef"}
	if _, err := useToken(i, false); err != nil || i.Token != "abc123.0123456789abcdef" {
		t.Errorf("%+v, %v", i, err)
	}
}
