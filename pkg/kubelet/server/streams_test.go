// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	remotecommandserver "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"keelson.dev/api/clock"
)

// command is a runtime that calls run for every exec and attach.
type command struct {
	echo
	run runFunc
}

type runFunc func(ctx context.Context, in io.Reader, out, errOut io.Writer,
	sizes <-chan remotecommandserver.TerminalSize) error

func (c command) Exec(ctx context.Context, _ string, _ []string, in io.Reader, out, errOut io.WriteCloser, _ bool,
	sizes <-chan remotecommandserver.TerminalSize) error {
	return c.run(ctx, in, out, errOut, sizes)
}

func (c command) Attach(ctx context.Context, _ string, in io.Reader, out, errOut io.WriteCloser, _ bool,
	sizes <-chan remotecommandserver.TerminalSize) error {
	return c.run(ctx, in, out, errOut, sizes)
}

// attachable is a kubelet whose containers accept attach requests.
type attachable struct{ *kubelet }

func (k attachable) Attach(_ context.Context, _ *v1.Pod, container string, o StreamOptions) (*url.URL, error) {
	r, err := k.streams.GetAttach(&runtimeapi.AttachRequest{ContainerId: container, Stdin: o.Stdin, Stdout: o.Stdout,
		Stderr: o.Stderr, Tty: o.TTY})
	if err != nil {
		return nil, err
	}
	return url.Parse(r.Url)
}

// listener accepts the connections to the runtime's streaming server and sends each one to conns.
type listener struct {
	net.Listener
	conns chan *connection
}

// connection is a connection to the runtime's streaming server, as the server sees it.
type connection struct {
	*net.TCPConn
	once   sync.Once
	closed chan struct{}
	// ended is closed when the client has closed the connection.
	ended chan struct{}
	end   sync.Once
}

func (c *connection) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // net/http ends its own background read by a deadline
		c.end.Do(func() { close(c.ended) })
	}
	return n, err
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{TCPConn: conn.(*net.TCPConn), closed: make(chan struct{}), ended: make(chan struct{})}
	if err := c.SetWriteBuffer(4 << 20); err != nil {
		return nil, err
	}
	l.conns <- c
	return c, nil
}

func (c *connection) Close() error {
	err := c.TCPConn.Close()
	c.once.Do(func() { close(c.closed) })
	return err
}

// queued returns two numbers of bytes in the kernel's buffers: those that the peer has not
// received, and those that the server has not read.
func (c *connection) queued() (unsent, unread int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var sendErr, receiveErr error
	err = raw.Control(func(fd uintptr) {
		unsent, sendErr = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		unread, receiveErr = unix.IoctlGetInt(int(fd), unix.SIOCINQ)
	})
	return unsent, unread, errors.Join(err, sendErr, receiveErr)
}

// clog writes output until the buffers of the connection are full, and returns how much it wrote.
// It waits up to 1 s for the server to read the input that has arrived.
func (c *connection) clog(out io.Writer) (total int64, err error) {
	for end := time.Now().Add(time.Second); ; {
		unsent, unread, err := c.queued()
		switch {
		case err != nil:
			return total, err
		case unsent < 1<<20 || total < 4<<20:
			n, err := out.Write(make([]byte, 16<<10))
			total += int64(n)
			if err != nil {
				return total, err
			}
		case unread == 0 || time.Now().After(end):
			return total, nil
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

// serveStreams starts a kubelet server whose runtime is c. It returns the server's URL, and a
// channel of the connections to the runtime's streaming server.
func serveStreams(t testing.TB, c command) (string, <-chan *connection) {
	t.Helper()
	k := attachable{&kubelet{pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}}}}
	runtime := httptest.NewUnstartedServer(nil)
	conns := make(chan *connection, 100)
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: runtime.Listener.Addr().String()}
	var err error
	if k.streams, err = streaming.NewServer(config, c); err != nil {
		t.Fatal(err)
	}
	runtime.Listener = listener{runtime.Listener, conns}
	runtime.Config.Handler = k.streams
	runtime.Start()
	t.Cleanup(runtime.Close)

	s := &Server{cfg: Config{Pods: k, Runtime: k, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)}}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", s.exec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", s.attach)
	front := httptest.NewTLSServer(mux)
	t.Cleanup(front.Close)
	return front.URL, conns
}

// executors returns one client for each streaming protocol, by the name of the protocol.
func executors(t testing.TB, target string) map[string]remotecommand.Executor {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &rest.Config{Host: u.Host, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	bySPDY, err := remotecommand.NewSPDYExecutor(cfg, http.MethodPost, u)
	if err != nil {
		t.Fatal(err)
	}
	byWebSocket, err := remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, target)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]remotecommand.Executor{"SPDY": bySPDY, "WebSocket": byWebSocket}
}

// waiting is a writer that counts bytes. It blocks the first write until the channel is closed.
type waiting struct {
	until <-chan struct{}
	bytes int64
}

func (w *waiting) Write(p []byte) (int, error) {
	<-w.until
	w.bytes += int64(len(p))
	return len(p), nil
}

// endless is an input that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestEndOfOutputOfCommandThatIgnoresItsInput runs a command that leaves some of its input unread.
// It checks that the client receives all output and the exit code, even if the client reads nothing
// before the runtime has closed its connection.
func TestEndOfOutputOfCommandThatIgnoresItsInput(t *testing.T) {
	for name, read := range map[string]int64{"unread input": 0, "partly read input": 4 << 20} {
		t.Run(name, func(t *testing.T) {
			closed, written := make(chan (<-chan struct{}), 1), make(chan int64, 1)
			var conns <-chan *connection
			var target string
			target, conns = serveStreams(t, command{run: func(_ context.Context, in io.Reader, out, _ io.Writer,
				_ <-chan remotecommandserver.TerminalSize) error {
				conn := <-conns
				closed <- conn.closed
				_, err := io.CopyN(io.Discard, in, read)
				total, clogErr := conn.clog(out)
				written <- total
				if err := errors.Join(err, clogErr); err != nil {
					return err
				}
				return utilexec.CodeExitError{Err: errors.New("exit code 7"), Code: 7}
			}})
			for name, executor := range executors(t, target+"/exec/ns/p/c?command=x&input=1&output=1") {
				t.Run(name, func(t *testing.T) {
					until := make(chan struct{})
					out := &waiting{until: until}
					go func() {
						<-<-closed
						close(until)
					}()
					err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: endless{}, Stdout: out})
					var exit exec.CodeExitError
					if !errors.As(err, &exit) || exit.Code != 7 {
						t.Errorf("error %v, want exit code 7", err)
					}
					if want := <-written; out.bytes != want {
						t.Errorf("%d bytes of %d arrived", out.bytes, want)
					}
				})
			}
		})
	}
}

// TestExecAndAttach checks for each protocol what passes between client and command: stdout,
// stderr, the end of the input, terminal sizes, and exit codes.
func TestExecAndAttach(t *testing.T) {
	upper := func(_ context.Context, in io.Reader, out, errOut io.Writer,
		_ <-chan remotecommandserver.TerminalSize) error {
		b, err := io.ReadAll(in)
		_, err2 := out.Write(b)
		_, err3 := errOut.Write(bytes.ToUpper(b))
		return errors.Join(err, err2, err3)
	}
	for name, test := range map[string]struct {
		path             string
		run              runFunc
		tty              bool
		out, errOut, err string
	}{
		"exec":   {path: "exec", run: upper, out: "hello", errOut: "HELLO"},
		"attach": {path: "attach", run: upper, out: "hello", errOut: "HELLO"},
		"exit code": {path: "exec", err: "command terminated with exit code 3",
			run: func(context.Context, io.Reader, io.Writer, io.Writer, <-chan remotecommandserver.TerminalSize) error {
				return utilexec.CodeExitError{Err: errors.New("x"), Code: 3}
			}},
		"exec fails": {path: "exec", err: "error executing command in container: no such file",
			run: func(context.Context, io.Reader, io.Writer, io.Writer, <-chan remotecommandserver.TerminalSize) error {
				return errors.New("no such file")
			}},
		"attach fails": {path: "attach", err: "error attaching to container: no such container",
			run: func(context.Context, io.Reader, io.Writer, io.Writer, <-chan remotecommandserver.TerminalSize) error {
				return errors.New("no such container")
			}},
		"terminal": {path: "exec", tty: true, out: "{80 24}",
			run: func(_ context.Context, _ io.Reader, out, _ io.Writer, sizes <-chan remotecommandserver.TerminalSize) error {
				_, err := fmt.Fprint(out, <-sizes)
				return err
			}},
	} {
		t.Run(name, func(t *testing.T) {
			query := "?command=x&input=1&output=1&error=1"
			if test.tty {
				query = "?command=x&input=1&output=1&tty=1"
			}
			target, _ := serveStreams(t, command{run: test.run})
			for name, executor := range executors(t, target+"/"+test.path+"/ns/p/c"+query) {
				t.Run(name, func(t *testing.T) {
					var out, errOut bytes.Buffer
					o := remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out, Stderr: &errOut}
					if test.tty {
						size := terminal{{Width: 80, Height: 24}}
						o.Tty, o.TerminalSizeQueue, o.Stderr = true, &size, nil
					}
					err := executor.StreamWithContext(t.Context(), o)
					if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.HasSuffix(err.Error(), test.err)) {
						t.Errorf("error %v, want %q", err, test.err)
					}
					if out.String() != test.out || errOut.String() != test.errOut {
						t.Errorf("out %q, err %q", &out, &errOut)
					}
				})
			}
		})
	}
}

// terminal implements TerminalSizeQueue with a fixed list of sizes.
type terminal []remotecommand.TerminalSize

func (s *terminal) Next() *remotecommand.TerminalSize {
	if len(*s) == 0 {
		return nil
	}
	size := (*s)[0]
	*s = (*s)[1:]
	return &size
}

// TestExecByOlderWebSocket checks version 4 of the streaming protocol over a WebSocket.
func TestExecByOlderWebSocket(t *testing.T) {
	target, _ := serveStreams(t, command{run: func(_ context.Context, in io.Reader, out, _ io.Writer,
		_ <-chan remotecommandserver.TerminalSize) error {
		if _, err := io.CopyN(out, in, 5); err != nil {
			return err
		}
		return utilexec.CodeExitError{Err: errors.New("x"), Code: 3}
	}})
	cfg, err := websocket.NewConfig("wss"+strings.TrimPrefix(target, "https")+
		"/exec/ns/p/c?command=x&input=1&output=1", target)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Protocol = []string{"v4.channel.k8s.io"}
	cfg.TlsConfig = &tls.Config{InsecureSkipVerify: true}
	conn, err := cfg.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := websocket.Message.Send(conn, []byte("\x00hello")); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for {
		var message []byte
		if err := websocket.Message.Receive(conn, &message); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got.Write(message)
	}
	if s := got.String(); !strings.HasPrefix(s, "\x01\x01hello\x03{") || !strings.Contains(s, `"message":"3"`) {
		t.Errorf("received %q", s)
	}
}

// TestClientDisconnects checks that the kubelet closes the connection to the runtime, which ends
// the command's input, when the client of a command without further output disconnects. The client
// disconnects after the first output, because client-go leaves goroutines behind if its context ends
// before it reads the connection.
func TestClientDisconnects(t *testing.T) {
	for _, query := range []string{"?command=x&output=1", "?command=x&input=1&output=1"} {
		ended := make(chan struct{})
		target, conns := serveStreams(t, command{run: func(ctx context.Context, in io.Reader, out, _ io.Writer,
			_ <-chan remotecommandserver.TerminalSize) error {
			if _, err := io.WriteString(out, "first"); err != nil {
				return err
			}
			if strings.Contains(query, "input") {
				_, _ = io.Copy(io.Discard, in)
			}
			<-ended
			return nil
		}})
		for name, executor := range executors(t, target+"/exec/ns/p/c"+query) {
			t.Run(name+query, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				output, stdout := io.Pipe()
				go func() {
					o := remotecommand.StreamOptions{Stdout: stdout}
					if strings.Contains(query, "input") {
						o.Stdin = neverEnding{ctx}
					}
					done <- executor.StreamWithContext(ctx, o)
				}()
				if _, err := io.ReadFull(output, make([]byte, len("first"))); err != nil {
					t.Error(err)
				}
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				conn := <-conns
				<-conn.ended
				ended <- struct{}{}
			})
		}
	}
}

// neverEnding is an input that delivers no data and ends with its context.
type neverEnding struct{ context.Context }

func (n neverEnding) Read([]byte) (int, error) {
	<-n.Done()
	return 0, n.Err()
}

// TestRuntimeLosesConnection checks that a client gets an error if the connection to the runtime
// ends before the result of the command.
func TestRuntimeLosesConnection(t *testing.T) {
	var conns <-chan *connection
	var target string
	target, conns = serveStreams(t, command{run: func(_ context.Context, _ io.Reader, out, _ io.Writer,
		_ <-chan remotecommandserver.TerminalSize) error {
		_, err := io.WriteString(out, "some output")
		_ = (<-conns).CloseWrite()
		return err
	}})
	for name, executor := range executors(t, target+"/exec/ns/p/c?command=x&output=1") {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out})
			if err == nil || !strings.Contains(err.Error(), "before the result of the command arrived") {
				t.Errorf("error %v", err)
			}
			if out.String() != "some output" {
				t.Errorf("output %q", &out)
			}
		})
	}
}

// BenchmarkExec measures the throughput of a command's output and input in MB/s.
func BenchmarkExec(b *testing.B) {
	const size = 100 << 20
	for name, query := range map[string]string{"output": "?command=x&output=1", "input": "?command=x&input=1&output=1",
		"both": "?command=x&input=1&output=1"} {
		target, _ := serveStreams(b, command{run: func(_ context.Context, in io.Reader, out, _ io.Writer,
			_ <-chan remotecommandserver.TerminalSize) error {
			var err error
			switch name {
			case "output":
				_, err = io.CopyN(onlyWriter{out}, endless{}, size)
			case "input":
				_, err = io.Copy(io.Discard, in)
			case "both":
				_, err = io.Copy(onlyWriter{out}, in)
			}
			return err
		}})
		for protocol, executor := range executors(b, target+"/exec/ns/p/c"+query) {
			b.Run(name+"/"+protocol, func(b *testing.B) {
				b.SetBytes(size)
				for b.Loop() {
					o := remotecommand.StreamOptions{Stdout: io.Discard}
					if name != "output" {
						o.Stdin = io.LimitReader(endless{}, size)
					}
					if err := executor.StreamWithContext(b.Context(), o); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// onlyWriter hides all methods except Write, so that io.Copy uses a buffer of its own.
type onlyWriter struct{ io.Writer }
