// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command listfloor measures the CPU time that an API server needs for a list request. For
// comparison, it measures in alternation the CPU time that a process needs to send the same number
// of prepared bytes, in pieces of 64 KB, with Go's TLS and HTTP/2. That is the minimum cost of a
// list with these libraries.
//
//	go run ./test/bench/listfloor --kubeconfig FILE --pid PID
//
// The objects to list must already exist. Each result is the median CPU time of the server's
// process alone, from /proc. The command also prints the share of the machine's CPU time that the
// hypervisor gave to other machines meanwhile. If that share is large, both results are too high.
package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
)

const (
	piece   = 64 << 10
	tick    = time.Second / 100 // unit of CPU times in /proc
	settled = 2                 // number of lists before the measurement
)

type options struct {
	kubeconfig, path string
	pid              int
	lists, rounds    int
	serve            int
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file of the API server to measure")
	flag.StringVar(&o.path, "path", "/api/v1/pods", "path of the list request")
	flag.IntVar(&o.pid, "pid", 0, "process ID of the API server")
	flag.IntVar(&o.lists, "lists", 10, "number of list requests in a round, sent one after the other")
	flag.IntVar(&o.rounds, "rounds", 5, "number of rounds; each measures the API server and then the comparison process")
	flag.IntVar(&o.serve, "serve", 0, "for internal use: run as the comparison process, which sends this many bytes")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "listfloor:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	if o.serve > 0 {
		return serve(o.serve)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	before, err := machine()
	if err != nil {
		return err
	}
	fmt.Println("form       MB     CPU-ms of a list (first)   of the floor   ratio")
	for _, form := range forms() {
		if err := o.compare(cfg, form); err != nil {
			return fmt.Errorf("%s: %w", form.name, err)
		}
	}
	after, err := machine()
	if err != nil {
		return err
	}
	fmt.Printf("stolen: %.0f %% of the machine\n", 100*float64(after.stolen-before.stolen)/float64(after.all-before.all))
	return nil
}

type form struct {
	name, accept, encoding string
}

func forms() []form {
	const protobuf = "application/vnd.kubernetes.protobuf"
	return []form{
		{"json", "application/json", "identity"},
		{"protobuf", protobuf, "identity"},
		{"table", "application/json;as=Table;v=v1;g=meta.k8s.io", "identity"},
		{"metadata", protobuf + ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "identity"},
		{"json-gzip", "application/json", "gzip"},
	}
}

// subject is the server process whose CPU time is measured.
type subject struct {
	client *http.Client
	url    string
	pid    int
	form   form
}

func (o *options) compare(cfg *rest.Config, form form) error {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	server := subject{client, cfg.Host + o.path, o.pid, form}
	first, size, err := server.lists(1)
	if err != nil {
		return err
	}
	floor, stop, err := startFloor(size, form)
	if err != nil {
		return err
	}
	defer stop()
	var costs [2][]time.Duration
	for round := -1; round < o.rounds; round++ {
		for i, s := range []subject{server, floor} {
			n := o.lists
			if round < 0 {
				n = settled
			}
			each, _, err := s.lists(n)
			if err != nil {
				return err
			}
			if round >= 0 {
				costs[i] = append(costs[i], each)
			}
		}
	}
	own, least := median(costs[0]), median(costs[1])
	fmt.Printf("%-9s %5.1f  %8.1f  %8.1f %20.1f %12.2f\n", form.name, float64(size)/1e6, milliseconds(own),
		milliseconds(first), milliseconds(least), float64(own)/float64(least))
	return nil
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// lists sends n requests. It returns the server's CPU time per request and the size of a response
// in bytes.
func (s *subject) lists(n int) (each time.Duration, size int, err error) {
	before, err := processor(s.pid)
	if err != nil {
		return 0, 0, err
	}
	for range n {
		if size, err = s.list(); err != nil {
			return 0, 0, err
		}
	}
	after, err := processor(s.pid)
	return (after - before) / time.Duration(n), size, err
}

func (s *subject) list() (int, error) {
	req, err := http.NewRequest(http.MethodGet, s.url, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", s.form.accept)
	req.Header.Set("Accept-Encoding", s.form.encoding)
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // it has been read
	if resp.StatusCode != http.StatusOK {
		return 0, errors.New(resp.Status)
	}
	size, err := io.Copy(io.Discard, resp.Body)
	return int(size), err
}

// startFloor starts the process for comparison, which serves size bytes.
func startFloor(size int, form form) (subject, func(), error) {
	self, err := os.Executable()
	if err != nil {
		return subject{}, nil, err
	}
	cmd := exec.Command(self, "--serve", strconv.Itoa(size))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return subject{}, nil, err
	}
	if err := cmd.Start(); err != nil {
		return subject{}, nil, err
	}
	stop := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return subject{}, nil, err
	}
	// The server is this program, which uses a self-signed certificate.
	cfg := &rest.Config{Host: "https://" + strings.TrimSpace(address),
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		stop()
		return subject{}, nil, err
	}
	return subject{client, cfg.Host, cmd.Process.Pid, form}, stop, nil
}

// serve responds to every request with the same size bytes, until the process is killed.
func serve(size int) error {
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	body := make([]byte, size)
	s := &http.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for rest := body; len(rest) > 0; {
				n := min(piece, len(rest))
				if _, err := w.Write(rest[:n]); err != nil {
					return
				}
				rest = rest[n:]
			}
		})}
	return s.ServeTLS(l, "", "")
}

// processor returns the CPU time of a process.
func processor(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), ") ") // split after the program's name, which may contain spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("stat of %d: %q", pid, data)
	}
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick, err
}

// usage is the CPU time of the machine in ticks: the total, and the part that the hypervisor gave
// to other machines.
type usage struct{ stolen, all int }

func machine() (usage, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return usage{}, err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	var u usage
	for i, f := range strings.Fields(line)[1:9] {
		n, err := strconv.Atoi(f)
		if err != nil {
			return u, err
		}
		if u.all += n; i == 7 {
			u.stolen = n
		}
	}
	return u, nil
}
