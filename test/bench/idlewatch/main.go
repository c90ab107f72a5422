// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Command idlewatch measures how much memory of an API server each idle watch needs. It opens many
// watches over several HTTP/2 connections, and compares the server's memory before and after. It
// reads the memory after a garbage collection (/debug/pprof/heap?gc=1).
//
//	go run ./test/bench/idlewatch --kubeconfig FILE --pid PID
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

type options struct {
	kubeconfig, path     string
	pid                  int
	watches, connections int
	settle               time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "file with the server's address and credentials")
	flag.StringVar(&o.path, "path", "/api/v1/namespaces/default/configmaps", "path of the resource to watch")
	flag.IntVar(&o.pid, "pid", 0, "process ID of the server")
	flag.IntVar(&o.watches, "watches", 10_000, "number of watches")
	flag.IntVar(&o.connections, "connections", 100, "number of connections; each has at most 250 watches")
	flag.DurationVar(&o.settle, "settle", 5*time.Second, "how long to wait before memory is read")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "idlewatch:", err)
		os.Exit(1)
	}
}

func (o options) run() error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	before, err := o.measure(config)
	if err != nil {
		return err
	}
	if err := o.open(config); err != nil {
		return err
	}
	after, err := o.measure(config)
	if err != nil {
		return err
	}
	for _, figure := range []string{"RssAnon", "go_memstats_heap_inuse_bytes", "go_memstats_stack_inuse_bytes"} {
		each := (after[figure] - before[figure]) / float64(o.watches) / 1000
		fmt.Printf("%-30s %8.1f MB before, %8.1f after: %.1f KB for each watch\n", figure, before[figure]/1e6,
			after[figure]/1e6, each)
	}
	return nil
}

// open opens the watches. They stay open until the process ends.
func (o options) open(config *rest.Config) error {
	failed := make(chan error, o.connections)
	var opening sync.WaitGroup
	for i := range o.connections {
		client, err := newClient(config)
		if err != nil {
			return err
		}
		opening.Go(func() {
			for range o.watches*(i+1)/o.connections - o.watches*i/o.connections {
				resp, err := client.Get(config.Host + o.path + "?watch=1&timeoutSeconds=3600")
				if err == nil && resp.StatusCode != http.StatusOK {
					err = errors.New(resp.Status)
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	opening.Wait()
	close(failed)
	return <-failed
}

// newClient returns a client that has its own connection.
func newClient(config *rest.Config) (*http.Client, error) {
	cfg, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}}, nil
}

// measure returns different measures of the server's memory, in bytes.
func (o options) measure(config *rest.Config) (map[string]float64, error) {
	client, err := newClient(config)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	time.Sleep(o.settle)
	for range 2 { // twice, because each garbage collection halves the size of a goroutine's stack
		if _, err := get(client, config.Host+"/debug/pprof/heap?gc=1"); err != nil {
			return nil, err
		}
	}
	time.Sleep(o.settle)
	figures := map[string]float64{}
	text, err := get(client, config.Host+"/metrics")
	if err != nil {
		return nil, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", o.pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text + string(status)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if v, err := strconv.ParseFloat(fields[1], 64); err == nil {
			if len(fields) == 3 && fields[2] == "kB" {
				v *= 1024
			}
			figures[strings.TrimSuffix(fields[0], ":")] = v
		}
	}
	return figures, nil
}

func get(client *http.Client, url string) (string, error) {
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // it has been read
	b, err := io.ReadAll(bufio.NewReader(resp.Body))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(b), err
}
