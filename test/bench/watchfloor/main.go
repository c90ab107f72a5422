// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command watchfloor measures the cost of sending one watch event to one watcher, without an API
// server. A process sends the same bytes to many watchers at a constant rate, in each of these
// ways:
//
//	tcp     a TCP connection for each watcher
//	tls     a TLS connection for each watcher
//	frames  HTTP/2 frames that one goroutine writes
//	stock   the HTTP/2 server of net/http
//	own     package http2server
//
// The result is the CPU time of that process. Another process reads the events; its CPU time is not
// included.
//
//	go run ./test/bench/watchfloor --by stock,own --rounds 5 --per-connection 25
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
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
	certutil "k8s.io/client-go/util/cert"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/http2server"
)

type options struct {
	watchers, size, rate int
	perConnection        int
	duration             time.Duration
	by                   string
	rounds               int
	read, address        string // options of the process that reads the events
}

func main() {
	var o options
	flag.IntVar(&o.watchers, "watchers", 500, "number of watchers")
	flag.IntVar(&o.perConnection, "per-connection", 1, "watchers that share an HTTP/2 connection; at most 100")
	flag.StringVar(&o.by, "by", "tcp,tls,frames,stock,own", "ways of sending the events to measure, separated by commas")
	flag.IntVar(&o.rounds, "rounds", 1, "how many times to measure each way, in turns")
	flag.IntVar(&o.size, "size", 5900, "size of an event, in bytes")
	flag.IntVar(&o.rate, "rate", 20, "number of events per second; each event is sent to all watchers")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "how long each measurement takes")
	flag.StringVar(&o.read, "read", "", "for internal use: run as the process that reads the events, in this way of --by")
	flag.StringVar(&o.address, "address", "", "for internal use: address from which the reading process gets the events")
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
	kinds := strings.Split(o.by, ",")
	taken := map[string][]time.Duration{}
	for range o.rounds {
		for _, by := range kinds {
			each, err := o.measure(by)
			if err != nil {
				return fmt.Errorf("%s: %w", by, err)
			}
			taken[by] = append(taken[by], each)
		}
	}
	for _, by := range kinds {
		fmt.Printf("%-6s CPU-µs per event:", by)
		slices.Sort(taken[by])
		for _, each := range taken[by] {
			fmt.Printf(" %.1f", float64(each.Nanoseconds())/1000)
		}
		fmt.Println()
	}
	return nil
}

// audience is the set of watchers that receive events.
type audience struct {
	mu     sync.Mutex
	joined []func(event []byte)
	full   chan struct{} // closed when all watchers have joined
	want   int
}

// join adds a watcher and returns the channel of its events.
func (a *audience) join() <-chan []byte {
	c := make(chan []byte, 64)
	a.add(func(event []byte) { c <- event })
	return c
}

// add adds a watcher. send is called for each event.
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

// measure returns the CPU time for sending one event to one watcher in the given way.
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
	readers := exec.Command(self, "--read", by, "--address", l.Addr().String(), "--watchers", fmt.Sprint(o.watchers),
		"--per-connection", fmt.Sprint(o.perConnection))
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
		a.send(event) // not measured: runs until the speed of the connections is stable
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

// processor returns the CPU time that this process has used so far.
func processor() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

func serve(l net.Listener, by string, cfg *tls.Config, a *audience) {
	if by == "stock" || by == "own" {
		s := &http.Server{TLSConfig: cfg, WriteTimeout: time.Minute,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				rc := http.NewResponseController(w)
				_ = rc.SetWriteDeadline(time.Time{})
				_ = rc.Flush()
				for event := range a.join() {
					if _, err := w.Write(event); err != nil || rc.Flush() != nil {
						return
					}
				}
			})}
		if by == "own" {
			if err := http2server.Configure(s, clock.Real()); err != nil {
				fmt.Fprintln(os.Stderr, "watchfloor:", err)
				return
			}
		}
		_ = s.ServeTLS(l, "", "") // returns when the listener is closed
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

// serveFrames responds to each request of a connection with events, which it writes as HTTP/2 frames.
// It ignores the content of requests, and all other frames of the client except settings.
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
		status := []byte{0x88} // status 200, from HPACK's static table
		err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: status, EndHeaders: true})
		// The write fails only when the process is ending.
		a.add(func(event []byte) { _ = framer.WriteData(id, false, event) })
	}
}

// readAll opens the watchers' connections and reads their events until the process is killed.
func (o options) readAll() error {
	failed := make(chan error)
	client := o.client()
	for i := range o.watchers {
		if i%o.perConnection == 0 {
			client = o.client()
		}
		go func() {
			r, err := o.open(client)
			if err == nil {
				_, err = io.Copy(io.Discard, r)
			}
			failed <- err
		}()
	}
	return <-failed
}

// client returns a client that has its own connection.
func (o options) client() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: o.tls(), ForceAttemptHTTP2: true}}
}

func (o options) tls() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} // the server has a self-signed certificate
}

func (o options) open(client *http.Client) (io.Reader, error) {
	if o.read != "tcp" && o.read != "tls" {
		resp, err := client.Get("https://" + o.address + "/")
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
		c = tls.Client(c, o.tls())
	}
	_, err = c.Write([]byte{1})
	return c, err
}
