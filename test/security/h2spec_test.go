// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"keelson.dev/apiserver/http2server/http2test"
)

// TestH2Spec runs h2spec, the conformance suite for HTTP/2, against the API server's HTTP/2 server.
// Every case must pass, without exceptions.
func TestH2Spec(t *testing.T) {
	program := filepath.Join(t.TempDir(), "h2spec")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/summerwind/h2spec/cmd/h2spec")
	build.Dir, build.Env = "../../hack/tools/h2spec", append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	address := http2test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body) // most requests of the suite end early, so an error is expected
		_, _ = io.WriteString(w, "answer")
	}))
	host, port, err := net.SplitHostPort(address)
	check(t, err)
	suite := exec.CommandContext(t.Context(), program, "--host", host, "--port", port, "--tls", "--insecure",
		"--timeout", "10")
	if out, err := suite.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
