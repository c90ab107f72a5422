// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery/cached/disk"
	"k8s.io/client-go/rest"
)

// TestCVE_2023_44487 starts many requests and cancels each immediately (the "rapid reset" attack).
// This costs a server more than the client, and requires no credentials.
func TestCVE_2023_44487(t *testing.T) {
	lab := newLab(t, nil)
	c, err := rest.TLSConfigFor(lab.TokenConfig("none"))
	check(t, err)
	c.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(lab.URL, "https://"), c)
	check(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, http2.ClientPreface)
	check(t, err)
	framer := http2.NewFramer(conn, conn)
	check(t, framer.WriteSettings())
	begin := func(stream uint32) error {
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"},
			{Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/api/v1/pods"}, {Name: ":authority", Value: "x"}} {
			if err := e.WriteField(f); err != nil {
				return err
			}
		}
		return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(),
			EndStream: true, EndHeaders: true})
	}
	check(t, begin(1))
	limit, closing := uint32(0), false
	for !closing {
		frame, err := framer.ReadFrame()
		if errors.Is(err, io.EOF) || err != nil {
			break // the server has closed the connection
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if n, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
				limit = n
			}
		case *http2.GoAwayFrame:
			closing = true
		}
	}
	if limit == 0 || limit > 250 {
		t.Errorf("a connection may have %d streams", limit)
	}
	if !closing {
		t.Error("the server does not send GOAWAY to a client without credentials")
	}
	// Check that the server does not serve further requests on this connection.
	answered := 0
	for stream := uint32(3); stream < 2003; stream += 2 {
		if begin(stream) != nil || framer.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			break
		}
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			break
		}
		if h, ok := frame.(*http2.HeadersFrame); ok && h.StreamID > 1 {
			answered++
		}
	}
	if answered > 0 {
		t.Errorf("%d requests were answered after GOAWAY", answered)
	}
}

// TestCVE_2019_11244 checks the permissions of the clients' discovery cache on disk. Older clients
// let any user write to it.
func TestCVE_2019_11244(t *testing.T) {
	lab := newLab(t, nil)
	dir := t.TempDir()
	client, err := disk.NewCachedDiscoveryClientForConfig(lab.Config, filepath.Join(dir, "discovery"),
		filepath.Join(dir, "http"), 0)
	check(t, err)
	_, err = client.ServerPreferredResources()
	check(t, err)
	files := 0
	check(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o002 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		files++
		return err
	}))
	if files == 0 {
		t.Error("the client cached nothing, so the test checked nothing")
	}
}

// TestCVE_2019_11243 checks that rest.AnonymousClientConfig returns a client configuration without
// credentials.
func TestCVE_2019_11243(t *testing.T) {
	c := rest.AnonymousClientConfig(&rest.Config{
		BearerToken: "t", BearerTokenFile: "f", Username: "u", Password: "p",
		TLSClientConfig: rest.TLSClientConfig{CertData: []byte("c"), KeyData: []byte("k"), CertFile: "c", KeyFile: "k"},
	})
	if c.BearerToken+c.BearerTokenFile+c.Username+c.Password+c.CertFile+c.KeyFile != "" ||
		len(c.CertData)+len(c.KeyData) > 0 {
		t.Errorf("credentials remain: %+v", c)
	}
}

// TestCVE_2024_21626 checks that the versions of the container runtimes on nodes have the fixes for
// container escapes (also CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881).
func TestCVE_2024_21626(t *testing.T) {
	data, err := os.ReadFile("../../hack/tools/go.mod")
	check(t, err)
	for module, oldest := range map[string]string{
		"github.com/opencontainers/runc": "v1.4.0", "github.com/containerd/containerd/v2": "v2.2.0",
		"github.com/containernetworking/plugins": "v1.9.0",
	} {
		found := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(data)
		if found == nil {
			t.Errorf("%s is not among the tools", module)
			continue
		}
		have, err := version.ParseSemantic(string(found[1]))
		check(t, err)
		if !have.AtLeast(version.MustParseSemantic(oldest)) {
			t.Errorf("%s is %s, older than %s", module, have, oldest)
		}
	}
}

// TestCVE_2020_8558 checks that no component enables the kernel setting route_localnet, with which
// neighbours of a node could reach the node's services on loopback.
func TestCVE_2020_8558(t *testing.T) {
	for _, dir := range []string{"../../pkg/proxy", "../../pkg/nft", "../../pkg/network", "../../pkg/cluster",
		"../../pkg/provision", "../../pkg/kubelet"} {
		check(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			if bytes.Contains(data, []byte("route_localnet")) {
				t.Errorf("%s contains route_localnet", path)
			}
			return err
		}))
	}
}
