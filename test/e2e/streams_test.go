// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
)

// Amounts of data in bytes: large for exec in one direction, forwarded for port-forward, little for a
// slow reader, and medium for other cases. A slow reader needs longer for its amount than all
// timeouts of servers and than the interval between pings.
const (
	large     = 100 << 20
	medium    = 16 << 20
	forwarded = 8 << 20
	little    = 32 << 20
)

// streamPods has three pods. The pod "shell" runs commands. Its other containers receive 8 MB on
// port 8080 and respond with the digest, and send 8 MB to each client of port 8081. The other two
// pods read their input with a command whose stdout, or stdout and stderr, is a file.
const streamPods = `
apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  terminationGracePeriodSeconds: 0
  nodeName: n1
  volumes: [{name: d, hostPath: {path: /var/lib/streams, type: DirectoryOrCreate}}]
  containers:
  - name: shell
    image: busybox:1.36
    command: [sleep, "3600"]
    volumeMounts: [{name: d, mountPath: /d}]
  - name: count
    image: busybox:1.36
    command: [nc, -lk, -p, "8080", -e, sh, -c, head -c 8388608 | sha256sum]
  - name: source
    image: busybox:1.36
    command: [nc, -lk, -p, "8081", -e, sh, -c, yes 0123456789abcde | head -c 8388608]
---
apiVersion: v1
kind: Pod
metadata: {name: without-stdout}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  nodeName: n1
  volumes: [{name: d, hostPath: {path: /var/lib/streams, type: DirectoryOrCreate}}]
  containers:
  - name: c
    image: busybox:1.36
    stdin: true
    stdinOnce: true
    command: [sh, -c, exec cat >/d/without-stdout]
    volumeMounts: [{name: d, mountPath: /d}]
---
apiVersion: v1
kind: Pod
metadata: {name: without-outputs}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  nodeName: n1
  volumes: [{name: d, hostPath: {path: /var/lib/streams, type: DirectoryOrCreate}}]
  containers:
  - name: c
    image: busybox:1.36
    stdin: true
    stdinOnce: true
    command: [sh, -c, exec cat >/d/without-outputs 2>&1]
    volumeMounts: [{name: d, mountPath: /d}]
`

// streamer opens streams to pods of a namespace, either with WebSocket or with SPDY.
type streamer struct {
	cfg       *rest.Config
	namespace string
	websocket bool
}

// url returns the URL of a subresource of a pod.
func (s streamer) url(pod, subresource string, options any) *url.URL {
	r := shared.client.CoreV1().RESTClient().Post().Namespace(s.namespace).Resource("pods").Name(
		pod).SubResource(subresource)
	switch o := options.(type) {
	case *v1.PodExecOptions:
		r = r.VersionedParams(o, scheme.ParameterCodec)
	case *v1.PodAttachOptions:
		r = r.VersionedParams(o, scheme.ParameterCodec)
	}
	return r.URL()
}

func (s streamer) stream(ctx context.Context, at *url.URL, o remotecommand.StreamOptions) error {
	var e remotecommand.Executor
	var err error
	if s.websocket {
		e, err = remotecommand.NewWebSocketExecutor(s.cfg, http.MethodGet, at.String())
	} else {
		e, err = remotecommand.NewSPDYExecutor(s.cfg, http.MethodPost, at)
	}
	if err != nil {
		return err
	}
	return e.StreamWithContext(ctx, o)
}

// exec runs a command in a shell. Nil streams are not connected.
func (s streamer) exec(t *testing.T, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	at := s.url("shell", "exec", &v1.PodExecOptions{
		Container: "shell", Command: []string{"sh", "-c", command}, Stdin: stdin != nil, Stdout: true, Stderr: stderr != nil,
	})
	return s.stream(ctx, at, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr})
}

// output runs a command in a shell and returns what it writes to stdout.
func (s streamer) output(t *testing.T, command string) string {
	t.Helper()
	var out bytes.Buffer
	if err := s.exec(t, command, nil, &out, nil); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return out.String()
}

// dialer returns a dialer for port-forward.
func (s streamer) dialer(t *testing.T, at *url.URL) httpstream.Dialer {
	t.Helper()
	if s.websocket {
		d, err := portforward.NewSPDYOverWebsocketDialer(at, s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	transport, upgrader, err := spdy.RoundTripperFor(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
}

// forward forwards a local port to a port of a pod until the test ends, and returns the local
// address.
func (s streamer) forward(t *testing.T, port string) string {
	t.Helper()
	stop, ready, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	f, err := portforward.New(s.dialer(t, s.url("shell", "portforward", nil)), []string{":" + port}, stop,
		ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- f.ForwardPorts() }()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatal(err)
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	return "127.0.0.1:" + strconv.Itoa(int(ports[0].Local))
}

// noise returns a reader of n pseudo-random bytes, which are the same each time, and a function
// that returns the digest of the bytes read.
func noise(n int64) (io.Reader, func() string) {
	h := sha256.New()
	return io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{}), n), h), func() string { return digest(h) }
}

func digest(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// lines returns the digest of the first n bytes that "yes 0123456789abcde" writes.
func lines(n int64) string {
	h := sha256.New()
	for range n / 16 {
		_, _ = io.WriteString(h, "0123456789abcde\n")
	}
	return digest(h)
}

// slowly is a writer that accepts 4 MB per second.
type slowly struct {
	context.Context
	*rate.Limiter
	io.Writer
}

func newSlowly(ctx context.Context, w io.Writer) slowly {
	return slowly{ctx, rate.NewLimiter(4<<20, 1<<20), w}
}

func (w slowly) Write(p []byte) (int, error) {
	if err := w.WaitN(w.Context, len(p)); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}

// code returns the exit code in an error, or -1 if the error has none.
func code(err error) int {
	var exit exec.CodeExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Code
	}
	return -1
}

// TestStreams checks for WebSocket and SPDY that exec, attach, cp and port-forward deliver all data
// in both directions, and that they end with the exit code of the process.
func TestStreams(t *testing.T) {
	cfg, err := clientcmd.BuildConfigFromFlags("", shared.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	ns := namespace(t, "streams")
	for name, websocket := range map[string]bool{"WebSocket": true, "SPDY": false} {
		t.Run(name, func(t *testing.T) {
			s := streamer{cfg, ns, websocket}
			create(t, ns, streamPods)
			for _, pod := range []string{"shell", "without-stdout", "without-outputs"} {
				eventually(t, pod+" runs", func() bool {
					p := podNamed(t, ns, pod)
					return p != nil && ready(p)
				})
			}
			t.Run("exec", s.testExec)
			t.Run("exec of a command that closes its outputs", s.testClosedOutputs)
			t.Run("exit codes", s.testExitCodes)
			t.Run("attach", s.testAttach)
			t.Run("port-forward", s.testPortForward)
			ctl(t, "-n", ns, "delete", "pods", "--all")
		})
	}
	t.Run("cp", func(t *testing.T) { testCopy(t, ns) })
}

func (s streamer) testExec(t *testing.T) {
	h := sha256.New()
	if err := s.exec(t, "yes 0123456789abcde | head -c "+strconv.Itoa(large), nil, h, nil); err != nil ||
		digest(h) != lines(large) {
		t.Errorf("output: error %v, all of it: %t", err, digest(h) == lines(large))
	}
	in, sum := noise(large)
	var out bytes.Buffer
	if err := s.exec(t, "sha256sum", in, &out, nil); err != nil || !strings.HasPrefix(out.String(), sum()) {
		t.Errorf("input: error %v, %s arrived, want %s", err, out.String(), sum())
	}
	h.Reset()
	in, sum = noise(medium)
	if err := s.exec(t, "cat", in, h, nil); err != nil || digest(h) != sum() {
		t.Errorf("both ways: error %v, all of it: %t", err, digest(h) == sum())
	}
	h.Reset()
	n := &count{}
	slow := newSlowly(t.Context(), io.MultiWriter(n, h))
	if err := s.exec(t, "yes 0123456789abcde | head -c "+strconv.Itoa(little), nil, slow, nil); err != nil ||
		digest(h) != lines(little) {
		t.Errorf("slow reader: error %v, %d bytes of %d", err, n.bytes, little)
	}
}

func (s streamer) testClosedOutputs(t *testing.T) {
	for name, command := range map[string]string{
		"redirected stdout":  "cat >/d/f",
		"redirected outputs": "exec cat >/d/f 2>&1",
		"closed outputs":     "exec 3>/d/f >&- 2>&-; exec cat >&3",
		"closed stderr":      "exec 2>&-; cat >/d/f",
	} {
		in, sum := noise(medium)
		if err := s.exec(t, command, in, io.Discard, io.Discard); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := s.output(t, "sha256sum /d/f"); !strings.HasPrefix(got, sum()) {
			t.Errorf("%s: %s arrived, want %s", name, got, sum())
		}
	}
	// All data of stderr must arrive, even though the process has closed stdout earlier.
	in, sum := noise(medium)
	h := sha256.New()
	if err := s.exec(t, "exec >&-; exec cat >&2", in, io.Discard, h); err != nil || digest(h) != sum() {
		t.Errorf("stderr after stdout: error %v, all of it: %t", err, digest(h) == sum())
	}
}

func (s streamer) testExitCodes(t *testing.T) {
	for command, want := range map[string]int{
		"exit 0": 0,
		"yes 0123456789abcde | head -c 4000000; exit 7": 7,
		"kill -9 $$":                      137,
		"exec <&-; echo; exit 4":          4, // the command does not read its input
		"head -c 1000 >/dev/null; exit 5": 5, // the command reads only a part of its input
		"exec >&- 2>&-; exit 6":           6,
		"head -c 1000 >/dev/null":         0,
	} {
		in, _ := noise(medium)
		n := &count{}
		if got := s.exec(t, command, in, n, io.Discard); code(got) != want {
			t.Errorf("%s: %v, want exit code %d", command, got, want)
		}
		if strings.Contains(command, "4000000") && n.bytes != 4000000 {
			t.Errorf("%s: %d bytes arrived", command, n.bytes)
		}
	}
	if got := code(s.exec(t, "cat; exit 3", strings.NewReader("short"), io.Discard, nil)); got != 3 {
		t.Errorf("a short input: exit code %d", got)
	}
}

// count is a writer that counts the bytes written to it.
type count struct{ bytes int64 }

func (c *count) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return len(p), nil
}

func (s streamer) testAttach(t *testing.T) {
	for _, pod := range []string{"without-stdout", "without-outputs"} {
		in, sum := noise(medium)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		at := s.url(pod, "attach", &v1.PodAttachOptions{Container: "c", Stdin: true, Stdout: true, Stderr: true})
		err := s.stream(ctx, at, remotecommand.StreamOptions{Stdin: in, Stdout: io.Discard, Stderr: io.Discard})
		cancel()
		if err != nil {
			t.Errorf("%s: %v", pod, err)
		}
		eventually(t, pod+" has succeeded",
			func() bool { return podNamed(t, s.namespace, pod).Status.Phase == v1.PodSucceeded })
		if got := s.output(t, "sha256sum /d/"+pod); !strings.HasPrefix(got, sum()) {
			t.Errorf("%s: %s arrived, want %s", pod, got, sum())
		}
	}
}

func (s streamer) testPortForward(t *testing.T) {
	dial := func(address string) net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	conn := dial(s.forward(t, "8081"))
	h := sha256.New()
	if n, err := io.Copy(h, conn); err != nil || digest(h) != lines(forwarded) {
		t.Errorf("download: %d bytes arrived, error %v", n, err)
	}
	_ = conn.Close()
	conn = dial(s.forward(t, "8080"))
	in, sum := noise(forwarded)
	if _, err := io.Copy(conn, in); err != nil {
		t.Errorf("upload: %v", err)
	}
	got, err := io.ReadAll(conn)
	_ = conn.Close()
	if err != nil || !strings.HasPrefix(string(got), sum()) {
		t.Errorf("upload: %q arrived, error %v, want %s", got, err, sum())
	}
}

// testCopy copies a file into a pod and back, and compares the two files.
func testCopy(t *testing.T, ns string) {
	create(t, ns, streamPods)
	eventually(t, "shell runs", func() bool {
		p := podNamed(t, ns, "shell")
		return p != nil && ready(p)
	})
	dir := t.TempDir()
	in, sum := noise(forwarded)
	f, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, in); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	ctl(t, "-n", ns, "cp", "-c", "shell", filepath.Join(dir, "file"), "shell:/d/file")
	ctl(t, "-n", ns, "cp", "-c", "shell", "shell:/d/file", filepath.Join(dir, "back"))
	back, err := os.Open(filepath.Join(dir, "back"))
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	h := sha256.New()
	if n, err := io.Copy(h, back); err != nil || digest(h) != sum() {
		t.Errorf("%d bytes were copied back, want the same %d; error %v", n, forwarded, err)
	}
}
