// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command watchfloor measures what it takes to send one watch event to one
// watcher, without an API server: the processor time of a process that sends the
// same bytes to many connections at a steady rate, by TCP, by TLS, by frames of HTTP/2
// that are written by one goroutine, and by Go's HTTP/2 server. No watch can be cheaper than
// what it is sent by.
//
//	go run ./test/bench/watchfloor
//
// Those who read are a process of their own, whose time does not count.
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
	certutil "k8s.io/client-go/util/cert"
)

type options struct {
	watchers, size, rate int
	duration             time.Duration
	read, address        string // of the process that reads
}

func main() {
	var o options
	flag.IntVar(&o.watchers, "watchers", 500, "connections")
	flag.IntVar(&o.size, "size", 5900, "bytes of an event")
	flag.IntVar(&o.rate, "rate", 20, "events a second, each to all watchers")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "of each measurement")
	flag.StringVar(&o.read, "read", "", "be the readers: tcp, tls, frames or http2")
	flag.StringVar(&o.address, "address", "", "to read from")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "watchfloor:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	if o.read != "" {
		return o.readAll()
	}
	for _, by := range []string{"tcp", "tls", "frames", "http2"} {
		each, err := o.measure(by)
		if err != nil {
			return fmt.Errorf("%s: %w", by, err)
		}
		fmt.Printf("%-6s %.1f µs of CPU per event\n", by, float64(each.Nanoseconds())/1000)
	}
	return nil
}

// audience is who is sent events.
type audience struct {
	mu     sync.Mutex
	joined []func(event []byte)
	full   chan struct{} // closed when all have joined
	want   int
}

// join returns the events of one watcher.
func (a *audience) join() <-chan []byte {
	c := make(chan []byte, 64)
	a.add(func(event []byte) { c <- event })
	return c
}

// add has send called for each event.
func (a *audience) add(send func(event []byte)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.joined = append(a.joined, send); len(a.joined) == a.want {
		close(a.full)
	}
}

func (a *audience) send(event []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, send := range a.joined {
		send(event)
	}
}

// measure returns the processor time that one event to one watcher takes.
func (o options) measure(by string) (time.Duration, error) {
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return 0, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return 0, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close() //nolint:errcheck // the process ends
	a := &audience{want: o.watchers, full: make(chan struct{})}
	go serve(l, by, &tls.Config{Certificates: []tls.Certificate{pair}}, a)
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	readers := exec.Command(self, "--read", by, "--address", l.Addr().String(), "--watchers", fmt.Sprint(o.watchers))
	readers.Stderr = os.Stderr
	if err := readers.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = readers.Process.Kill()
		_ = readers.Wait()
	}()
	<-a.full
	return o.send(a)
}

func (o options) send(a *audience) (time.Duration, error) {
	event := make([]byte, o.size)
	tick := time.NewTicker(time.Second / time.Duration(o.rate))
	defer tick.Stop()
	for range o.rate {
		<-tick.C
		a.send(event) // until connections have found their pace
	}
	n := int(o.duration.Seconds() * float64(o.rate))
	before, err := processor()
	if err != nil {
		return 0, err
	}
	for range n {
		<-tick.C
		a.send(event)
	}
	<-tick.C
	after, err := processor()
	return (after - before) / time.Duration(n*o.watchers), err
}

// processor is the time that this process has had.
func processor() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

func serve(l net.Listener, by string, cfg *tls.Config, a *audience) {
	if by == "http2" {
		s := &http.Server{TLSConfig: cfg, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.Flush()
			for event := range a.join() {
				if _, err := w.Write(event); err != nil || rc.Flush() != nil {
					return
				}
			}
		})}
		_ = s.ServeTLS(l, "", "")
		return
	}
	if by == "frames" {
		cfg.NextProtos = []string{http2.NextProtoTLS}
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if by != "tcp" {
			c = tls.Server(c, cfg)
		}
		if by == "frames" {
			go serveFrames(c, a)
			continue
		}
		go func() {
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				return
			}
			for event := range a.join() {
				if _, err := c.Write(event); err != nil {
					return
				}
			}
		}()
	}
}

// serveFrames answers the first request of a connection with events as frames, and reads
// what the client answers with.
func serveFrames(c net.Conn, a *audience) {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(c, c)
	err := framer.WriteSettings()
	for err == nil {
		var f http2.Frame
		if f, err = framer.ReadFrame(); err != nil {
			return
		}
		if settings, ok := f.(*http2.SettingsFrame); ok && !settings.IsAck() {
			err = framer.WriteSettingsAck()
		}
		if _, ok := f.(*http2.HeadersFrame); !ok {
			continue
		}
		id := f.Header().StreamID
		status := []byte{0x88} // 200, of HPACK's static table
		err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: status, EndHeaders: true})
		a.add(func(event []byte) { _ = framer.WriteData(id, false, event) }) // the process ends
	}
}

// readAll reads what all watchers are sent, until the process is killed.
func (o options) readAll() error {
	failed := make(chan error)
	for range o.watchers {
		go func() {
			r, err := o.open()
			if err == nil {
				_, err = io.Copy(io.Discard, r)
			}
			failed <- err
		}()
	}
	return <-failed
}

func (o options) open() (io.Reader, error) {
	cfg := &tls.Config{InsecureSkipVerify: true} // it is this program that answers
	if o.read == "http2" || o.read == "frames" {
		t := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
		resp, err := (&http.Client{Transport: t}).Get("https://" + o.address + "/")
		if err != nil {
			return nil, err
		}
		return resp.Body, nil
	}
	c, err := net.Dial("tcp", o.address)
	if err != nil {
		return nil, err
	}
	if o.read == "tls" {
		c = tls.Client(c, cfg)
	}
	_, err = c.Write([]byte{1})
	return c, err
}
