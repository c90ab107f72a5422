// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	server "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/relay"
)

// command is the function that a test server runs instead of a command.
type command func(ctx context.Context, in io.Reader, out io.Writer) error

func (c command) ExecInContainer(ctx context.Context, _, _, _ string, _ []string, in io.Reader,
	out, _ io.WriteCloser, _ bool, _ <-chan server.TerminalSize, _ time.Duration) error {
	return c(ctx, in, out)
}

// ServeHTTP serves the stream protocol.
func (c command) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	server.ServeExec(w, r, c, "", "", "", nil, &server.Options{Stdin: true, Stdout: true}, time.Hour, time.Hour,
		server.SupportedStreamingProtocols)
}

// targets runs two servers with handler h, and returns them as targets: one with TLS, like a
// kubelet, and one that is paced, like a container runtime.
func targets(t *testing.T, h http.Handler) map[string]relay.Target {
	t.Helper()
	all := map[string]relay.Target{}
	for name, s := range map[string]*httptest.Server{
		"kubelet": httptest.NewTLSServer(h), "runtime": httptest.NewServer(h),
	} {
		t.Cleanup(s.Close)
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = relay.Target{URL: u, Transport: s.Client().Transport.(*http.Transport), Paced: name == "runtime",
			Clock: clock.Real()}
	}
	return all
}

// TestInput checks that a command receives all input and then the end of the input.
func TestInput(t *testing.T) {
	var got [sha256.Size]byte
	for name, target := range targets(t, command(func(_ context.Context, in io.Reader, out io.Writer) error {
		h := sha256.New()
		_, err := io.Copy(h, in)
		got = [sha256.Size]byte(h.Sum(nil))
		_, _ = io.WriteString(out, "done")
		return err
	})) {
		t.Run(name, func(t *testing.T) {
			in := make([]byte, 8<<20)
			_, _ = rand.NewChaCha8([32]byte{}).Read(in)
			var out bytes.Buffer
			err := target.Stream(t.Context(), remotecommand.StreamOptions{Stdin: bytes.NewReader(in), Stdout: &out})
			if err != nil || out.String() != "done" || got != sha256.Sum256(in) {
				t.Errorf("error %v, output %q, all input arrived: %t", err, &out, got == sha256.Sum256(in))
			}
		})
	}
}

// TestNoResult checks that Stream returns an error if the connection ends before a result has
// arrived.
func TestNoResult(t *testing.T) {
	for name, target := range targets(t, command(func(context.Context, io.Reader, io.Writer) error {
		panic(http.ErrAbortHandler)
	})) {
		t.Run(name, func(t *testing.T) {
			err := target.Stream(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: io.Discard})
			if err == nil || !strings.Contains(err.Error(), "before the result of the command arrived") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestRefusedUpgrade checks that Stream returns an error if the server does not upgrade the
// connection.
func TestRefusedUpgrade(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"error": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such pod", http.StatusNotFound) },
			"unable to upgrade connection: no such pod"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/other" {
				t.Error("the redirect was followed")
			}
			http.Redirect(w, r, "/other", http.StatusFound)
		}, "unable to upgrade connection: "},
		"other protocol": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "SPDY/3.1")
			w.WriteHeader(http.StatusSwitchingProtocols)
		}, "unable to upgrade connection: "},
		"no answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		for kind, target := range targets(t, test.answer) {
			t.Run(name+"/"+kind, func(t *testing.T) {
				err := target.Stream(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("error %v, want %q", err, test.want)
				}
			})
		}
	}
}

// TestEndOfContext checks that Stream returns when its context is canceled, even if the server does
// not answer.
func TestEndOfContext(t *testing.T) {
	began := make(chan struct{})
	silent := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-r.Context().Done()
	})
	running := command(func(_ context.Context, in io.Reader, _ io.Writer) error {
		began <- struct{}{}
		_, err := io.Copy(io.Discard, in)
		return err
	})
	for name, h := range map[string]http.Handler{"silent": silent, "running": running} {
		for kind, target := range targets(t, h) {
			t.Run(name+"/"+kind, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					<-began
					cancel()
				}()
				in, w := io.Pipe()
				defer w.Close()
				if target.Stream(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: io.Discard}) == nil {
					t.Error("no error")
				}
			})
		}
	}
}

// TestServeWebSocket checks that WebSocket clients receive the result of a command, and can end its
// input, with and without a limit of the rate.
func TestServeWebSocket(t *testing.T) {
	for kind, target := range targets(t, command(func(_ context.Context, in io.Reader, out io.Writer) error {
		b, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		_, err = out.Write(b)
		switch string(b) {
		case "exit":
			return utilexec.CodeExitError{Err: errors.New("x"), Code: 5}
		case "abort":
			panic(http.ErrAbortHandler)
		case "fail":
			return errors.New("no such file")
		}
		return err
	})) {
		for _, target.BytesPerSecond = range []int64{0, 1 << 20} {
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancel(r.Context())
				defer cancel()
				client := &relay.Client{ResponseWriter: w, Gone: cancel}
				defer client.Close()
				target.ServeWebSocket(client, r.WithContext(ctx), relay.Options{Stdin: true, Stdout: true})
			}))
			t.Cleanup(front.Close)
			for in, want := range map[string]string{"hello": "", "exit": "exit code 5", "fail": "no such file",
				"abort": "before the result of the command arrived"} {
				t.Run(kind+"/"+in, func(t *testing.T) {
					executor, err := remotecommand.NewWebSocketExecutor(&rest.Config{Host: front.URL}, http.MethodGet, front.URL)
					if err != nil {
						t.Fatal(err)
					}
					var out bytes.Buffer
					err = executor.StreamWithContext(t.Context(),
						remotecommand.StreamOptions{Stdin: strings.NewReader(in), Stdout: &out})
					if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
						t.Errorf("error %v, want %q", err, want)
					}
					if exit := new(exec.CodeExitError); in == "exit" && (!errors.As(err, exit) || exit.Code != 5) {
						t.Errorf("error %v, want exit code 5", err)
					}
					if in != "abort" && out.String() != in {
						t.Errorf("output %q", &out)
					}
				})
			}
		}
	}
}
