// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server runs Keelson's API server for Kubernetes' integration tests.
//
// These tests start Kubernetes' API server in their own process, with the functions StartTestServer
// of two packages. The files in the directories testserver and framework replace these functions by
// ones that use this package. It starts the program as a process of its own, with the command line
// that stands for the options which the test has set.
//
// A test that changes the server in a way that no flag can express (it replaces an authenticator or
// wraps the storage, for example) fails with the text NotApplicable, which distinguishes it from
// tests that find a fault.
package server

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

const (
	// NotApplicable begins the errors of tests that an API server in a process of its own cannot pass.
	NotApplicable = "not applicable: "
	// program is the environment variable with the path of the API server.
	program = "KEELSON_APISERVER"
	// poll is the interval in which Start asks whether a server is healthy.
	poll = 50 * time.Millisecond
	// readyTimeout is how long a server may take until it is healthy.
	readyTimeout = time.Minute
	// stopTimeout is how long a server may take to end after SIGTERM. Then it is killed.
	stopTimeout = time.Minute
)

// Logger is the part of testing.TB that a Server needs.
type Logger interface {
	Helper()
	Logf(format string, args ...any)
	Cleanup(f func())
}

// Config says how to start a server.
type Config struct {
	// Options are the options that the test has set. Flags are the flag sets that are bound to them.
	Options *options.ServerRunOptions
	Flags   []*pflag.FlagSet
	// Extra are further arguments, which have precedence.
	Extra []string
	// Dir is a directory for certificates and tokens. The server writes apiserver.crt to it.
	Dir string
	// SkipHealthz makes Start return before /healthz succeeds.
	SkipHealthz bool
}

// Server is a running API server.
type Server struct {
	// Client has the rights of group system:masters.
	Client *rest.Config
	// Port is the port on 127.0.0.1 where the server listens.
	Port int

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended; then err is set
	err   error
}

// Start starts a server and waits until it is healthy and has created the namespace default. The server
// ends with the test at the latest.
func Start(ctx context.Context, t Logger, c Config) (*Server, error) {
	t.Helper()
	path := os.Getenv(program)
	if path == "" {
		return nil, fmt.Errorf("the variable %s must have the path of the API server", program)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	token, err := tokens(c)
	if err != nil {
		return nil, err
	}
	args := append(arguments(c), "--secure-port="+strconv.Itoa(port), "--bind-address=127.0.0.1",
		"--cert-dir="+c.Dir, "--token-auth-file="+filepath.Join(c.Dir, "tokens.csv"))
	args = append(args, c.Extra...)
	t.Logf("Starting %s %s", path, strings.Join(args, " "))

	s := &Server{Port: port, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	output := &tail{}
	s.cmd.Stdout, s.cmd.Stderr = output, output
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	go func() {
		defer close(s.ended)
		if err := s.cmd.Wait(); err != nil {
			s.err = fmt.Errorf("API server: %w: %s", err, output)
		}
	}()
	t.Cleanup(func() { _ = s.Stop() })
	s.Client = &rest.Config{
		Host: "https://127.0.0.1:" + strconv.Itoa(port), BearerToken: token, QPS: 1000, Burst: 10000,
		TLSClientConfig: rest.TLSClientConfig{CAFile: certificate(c)},
	}
	if err := s.ready(ctx, c.SkipHealthz); err != nil {
		_ = s.Stop()
		if text := output.String(); refused(text) {
			return nil, fmt.Errorf("%sthe server refuses flags of the test: %s", NotApplicable, text)
		}
		return nil, fmt.Errorf("wait for the API server: %w: %s", err, output)
	}
	return s, nil
}

// refused reports whether a server ended because it does not have a feature gate, an emulated release
// or an API version that is off by default. The documentation lists these as differences. Kubernetes'
// server accepts locked gates in these tests, because the tests make it emulate an earlier release.
func refused(output string) bool {
	return slices.ContainsFunc([]string{
		"is not supported: this server cannot turn these features on or off",
		"runtime-config: this server does not have ", "this server cannot emulate ", "feature is locked to ",
	}, func(reason string) bool { return strings.Contains(output, reason) })
}

// certificate returns the file with the server's certificate.
func certificate(c Config) string {
	if f := c.Options.SecureServing.ServerCert.CertKey.CertFile; f != "" {
		return f
	}
	f := filepath.Join(c.Dir, "apiserver.crt")
	c.Options.SecureServing.ServerCert.CertKey.CertFile = f
	return f
}

// ready waits until the server is healthy and has its default namespace.
func (s *Server) ready(ctx context.Context, skipHealthz bool) error {
	return wait.PollUntilContextTimeout(ctx, poll, readyTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-s.ended:
			return false, s.err
		default:
		}
		// The file with the CA exists only after the server's start, so each attempt needs a client.
		client, err := kubernetes.NewForConfig(s.Client)
		if err != nil {
			return false, nil
		}
		if !skipHealthz {
			status := 0
			client.Discovery().RESTClient().Get().AbsPath("/healthz").Do(ctx).StatusCode(&status)
			if status != http.StatusOK {
				return false, nil
			}
		}
		_, err = client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err == nil, nil
	})
}

// Stop ends the server and returns its error if it did not end with success. It may be called more than
// once.
func (s *Server) Stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	return s.err
}

// arguments returns the flags that the test has set, those whose values in the options differ from
// their defaults, and the feature gates that the test has changed in its own process. The flags of the
// options are created again, because some tests replace a part of the options.
func arguments(c Config) []string {
	var args []string
	set := map[string]bool{}
	add := func(f *pflag.Flag) {
		if !ours[f.Name] {
			args = append(args, "--"+f.Name+"="+text(f))
		}
	}
	for _, fs := range c.Flags {
		fs.Visit(func(f *pflag.Flag) {
			set[f.Name] = true
			add(f)
		})
	}
	defaults := flagsOf(options.NewServerRunOptions())
	flagsOf(c.Options).VisitAll(func(f *pflag.Flag) {
		if !set[f.Name] && f.Value.String() != defaults.Lookup(f.Name).Value.String() {
			add(f)
		}
	})
	o := c.Options
	args = append(args,
		"--etcd-prefix="+o.Etcd.StorageConfig.Prefix,
		"--etcd-servers="+strings.Join(o.Etcd.StorageConfig.Transport.ServerList, ","))
	args = append(args, requestHeaders(o)...)
	gates := utilfeature.DefaultMutableFeatureGate
	initial := utilfeature.DefaultMutableFeatureGate.DeepCopyAndReset()
	for name := range gates.GetAll() {
		if gates.Enabled(name) != initial.Enabled(name) {
			args = append(args, fmt.Sprintf("--feature-gates=%s=%t", name, gates.Enabled(name)))
		}
	}
	return args
}

// flagsOf returns flags whose values are those of the options.
func flagsOf(o *options.ServerRunOptions) *pflag.FlagSet {
	all := pflag.NewFlagSet("options", pflag.ContinueOnError)
	sets := o.Flags()
	for _, fs := range sets.FlagSets {
		all.AddFlagSet(fs)
	}
	return all
}

// ours are the flags whose values in the options are not passed on as they are: Start sets some of them
// itself, and the function arguments sets the others from fields that tests change without a flag.
var ours = map[string]bool{
	"secure-port": true, "bind-address": true, "cert-dir": true, "token-auth-file": true,
	"etcd-prefix": true, "etcd-servers": true,
	"requestheader-client-ca-file": true, "requestheader-allowed-names": true, "requestheader-username-headers": true,
	"requestheader-uid-headers": true, "requestheader-group-headers": true, "requestheader-extra-headers-prefix": true,
}

// requestHeaders returns the flags of the authenticator for front proxies.
func requestHeaders(o *options.ServerRunOptions) []string {
	h := o.Authentication.RequestHeader
	if h == nil || h.ClientCAFile == "" {
		return nil
	}
	args := []string{"--requestheader-client-ca-file=" + h.ClientCAFile}
	for name, list := range map[string][]string{
		"allowed-names": h.AllowedNames, "username-headers": h.UsernameHeaders, "uid-headers": h.UIDHeaders,
		"group-headers": h.GroupHeaders, "extra-headers-prefix": h.ExtraHeaderPrefixes,
	} {
		if len(list) > 0 {
			args = append(args, "--requestheader-"+name+"="+strings.Join(list, ","))
		}
	}
	return args
}

// text returns the value of a flag as it is written on a command line.
func text(f *pflag.Flag) string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return strings.Trim(f.Value.String(), "[]")
}

// tokens writes the file of tokens: those of the test and one of a member of system:masters, which
// it returns.
func tokens(c Config) (string, error) {
	token := uuid.New().String()
	list := fmt.Sprintf("%s,system:apiserver,%s,system:masters\n", token, uuid.New())
	if file := c.Options.Authentication.TokenFile; file != nil && file.TokenFile != "" {
		own, err := os.ReadFile(file.TokenFile)
		if err != nil {
			return "", fmt.Errorf("tokens of the test: %w", err)
		}
		list += string(own)
	}
	if err := os.WriteFile(filepath.Join(c.Dir, "tokens.csv"), []byte(list), 0o600); err != nil {
		return "", fmt.Errorf("write tokens: %w", err)
	}
	return token, nil
}

// freePort returns a port on 127.0.0.1 that was free just now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	data []byte
}

// maxTail is the number of bytes that a tail keeps.
const maxTail = 8 << 10

// Write appends p.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if over := len(t.data) - maxTail; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
	}
	return len(p), nil
}

// String returns the end of the output.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.data))
}
