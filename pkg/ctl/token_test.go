// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/machine/discovery"
	"keelson.dev/keelson/pkg/pki"
	"keelson.dev/keelson/pkg/provision"
)

// kubeconfig writes an administrator's kubeconfig for a server and returns its path. change may be nil.
func kubeconfig(t *testing.T, s *testserver.Server, change func(*api.Cluster)) string {
	t.Helper()
	c := api.NewConfig()
	c.Clusters["c"] = &api.Cluster{Server: s.URL, CertificateAuthorityData: s.Config.CAData}
	if change != nil {
		change(c.Clusters["c"])
	}
	c.AuthInfos["u"] = &api.AuthInfo{ClientCertificateData: s.Config.CertData, ClientKeyData: s.Config.KeyData}
	c.Contexts["x"], c.CurrentContext = &api.Context{Cluster: "c", AuthInfo: "u"}, "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestTokens creates, lists and deletes a token.
func TestTokens(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	config := "--kubeconfig=" + kubeconfig(t, s, nil)
	if out, err := execute(t, "token", "list", config); err != nil || out != "There are no tokens.\n" {
		t.Errorf("no tokens: %q, %v", out, err)
	}
	if out, err := execute(t, "token", "list", "-o", "json", config); err != nil || out != "[]\n" {
		t.Errorf("no tokens: %q, %v", out, err)
	}
	out, err := execute(t, "token", "create", "--description", "rack 4", config)
	parts := regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})\n$`).FindStringSubmatch(out)
	if err != nil || parts == nil {
		t.Fatal(out, err)
	}
	id, secret := parts[1], parts[2]
	out, err = execute(t, "token", "list", config)
	if err != nil || !regexp.MustCompile(`(?m)^`+id+
		` +\S+Z +(1h0m0s|59m\S+) +authentication +system:bootstrappers:keelson:node +rack 4$`).MatchString(out) {
		t.Errorf("list: %v\n%s", err, out)
	}
	shown, err := execute(t, "token", "list", "--output=json", config)
	var list []provision.Token
	if err != nil || json.Unmarshal([]byte(shown), &list) != nil || len(list) != 1 || list[0].ID != id {
		t.Errorf("JSON: %v\n%s", err, shown)
	}
	if strings.Contains(out+shown, secret) {
		t.Errorf("a list shows the secret part of a token:\n%s\n%s", out, shown)
	}
	// An invalid argument must not leave half of the work done.
	if out, err := execute(t, "token", "delete", id, "nonsense", config); err == nil || out != "" ||
		strings.Contains(err.Error(), "nonsense") {
		t.Errorf("invalid argument: %q, %v", out, err)
	}
	if out, err := execute(t, "token", "delete", id+"."+secret, config); err != nil ||
		out != "bootstrap token \""+id+"\" deleted\n" {
		t.Errorf("delete: %q, %v", out, err)
	}
	if out, err := execute(t, "token", "delete", id, config); !apierrors.IsNotFound(err) {
		t.Errorf("delete again: %q, %v", out, err)
	}
}

// TestTokenErrors checks that wrong arguments do not create a token.
func TestTokenErrors(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	for name, tc := range map[string]struct {
		args   []string
		change func(*api.Cluster)
		want   string
	}{
		"never expires": {[]string{"--ttl=0"}, nil, "must expire"},
		"control plane": {[]string{"--ttl=0", "--control-plane"}, nil, "must expire"},
		"unverified server": {[]string{"--print-join-command"}, func(c *api.Cluster) {
			c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil
		}, errInsecure.Error()},
		"argument": {[]string{"abc123.0123456789abcdef"}, nil, "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"token", "create", "--kubeconfig=" + kubeconfig(t, s, tc.change)}, tc.args...)
			if out, err := execute(t, args...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, output %q", err, out)
			}
			if list, err := provision.ListTokens(t.Context(), s.Client); err != nil || len(list) != 0 {
				t.Errorf("tokens %v, %v", list, err)
			}
		})
	}
}

// TestPrintJoinCommand checks that "ctl join" accepts the command that "ctl token create" prints, and
// that the hash is that of the cluster's authority. The kubeconfig has the authority's certificate in
// itself or in a file.
func TestPrintJoinCommand(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	authority, err := pki.ReadCertificate(filepath.Join(s.Dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*api.Cluster){"inline": nil, "file": func(c *api.Cluster) {
		c.CertificateAuthorityData, c.CertificateAuthority = nil, filepath.Join(s.Dir, "ca.crt")
	}} {
		t.Run(name, func(t *testing.T) {
			out, err := execute(t, "token", "create", "--print-join-command", "--kubeconfig="+kubeconfig(t, s, change))
			if err != nil {
				t.Fatal(err)
			}
			args := strings.Fields(out)
			if len(args) != 7 || !strings.HasPrefix(out, "ctl join 192.0.2.1:") ||
				args[len(args)-1] != discovery.Hash(authority) {
				t.Fatalf("command %q", out)
			}
			args = args[1:]
			root := Command(append([]string{"ctl"}, args...), strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
			c, rest, err := root.Find(args)
			if err != nil || c.Name() != "join" {
				t.Fatal(c.Name(), err)
			}
			if err := c.ParseFlags(rest); err != nil {
				t.Error(err)
			}
			if err := c.ValidateArgs(c.Flags().Args()); err != nil {
				t.Error(err)
			}
		})
	}
}
