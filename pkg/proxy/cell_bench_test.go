// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/proxy/kernel"
	"keelson.dev/keelson/pkg/proxy/ruleset"
	"keelson.dev/keelson/test/unshare"
)

// BenchmarkCell runs the proxy's program against an API server with thousands of services. It
// measures the start, the change of one endpoint, and the idle process:
//
//	go test ./pkg/proxy -run - -bench Cell -benchtime 200x -timeout 60m
//
// One operation is one change. Creating the services takes a minute or more and is not measured.
func BenchmarkCell(b *testing.B) {
	unshare.Need(b)
	for _, size := range []struct{ services, endpoints int }{{1, 1}, {10000, 10}, {44000, 2}} {
		b.Run(fmt.Sprintf("services=%d/endpoints=%d", size.services, size.endpoints), func(b *testing.B) {
			benchmarkCell(b, size.services, size.endpoints)
		})
	}
}

func benchmarkCell(b *testing.B, services, endpoints int) {
	c := &cluster{node: &node{space: own(b)}}
	c.serve()
	c.fill(services, endpoints)
	p := c.process(b)
	defer p.end()
	made := p.ready()
	clk := clock.Real()
	clk.Sleep(15 * time.Second) // lets Go's runtime return the memory that only the start needed
	start, idle, files := p.cpu(), p.memory("RssAnon"), p.memory("RssFile")
	sync := p.number("kubeproxy_sync_full_proxy_rules_duration_seconds_sum", `ip_family="IPv4"`)

	changes := c.follow(b)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		s := many(i%services, endpoints+1-i/services%2)
		_, err := c.client.DiscoveryV1().EndpointSlices("default").Update(context.Background(), s, metav1.UpdateOptions{})
		c.must(err)
		answered := clk.Now()
		took = append(took, (<-changes).Sub(answered))
	}
	slices.Sort(took)
	b.ReportMetric(made.Seconds(), "s-to-table")
	b.ReportMetric(sync, "s-first-sync")
	b.ReportMetric(start.Seconds(), "cpu-s-start")
	b.ReportMetric(idle, "MB-anonymous-idle")
	b.ReportMetric(files, "MB-files-idle")
	b.ReportMetric(float64((p.cpu()-start).Microseconds())/float64(len(took)), "cpu-us/change")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "us-p99")
	b.ReportMetric(p.memory("RssAnon"), "MB-anonymous-after")
}

// many returns the EndpointSlice of the ith of many services.
func many(i, endpoints int) *discoveryv1.EndpointSlice {
	var list []endpoint
	for e := range endpoints {
		n := i*10 + e
		list = append(list, on(fmt.Sprintf("n%d", n%1000),
			&pod{v4: netip.AddrFrom4([4]byte{10, 244 + byte(n>>16), byte(n >> 8), byte(n)})}))
	}
	return slice(fmt.Sprintf("s%05d", i), corev1.ProtocolTCP, discoveryv1.AddressTypeIPv4, list...)
}

// fill creates the services and their EndpointSlices.
func (c *cluster) fill(services, endpoints int) {
	c.t.Helper()
	var g errgroup.Group
	g.SetLimit(16)
	for i := range services {
		g.Go(func() error {
			s := many(i, endpoints)
			svc := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: s.Labels[discoveryv1.LabelServiceName]},
				Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": s.Name}, Ports: []corev1.ServicePort{{Port: 80}}},
			}
			if _, err := c.client.CoreV1().Services("default").Create(context.Background(), svc,
				metav1.CreateOptions{}); err != nil {
				return err
			}
			_, err := c.client.DiscoveryV1().EndpointSlices("default").Create(context.Background(), s, metav1.CreateOptions{})
			return err
		})
	}
	c.must(g.Wait())
}

// follow returns a channel that receives the time of each later transaction in the kernel.
func (c *cluster) follow(b *testing.B) <-chan time.Time {
	conn, err := nftables.New()
	c.must(err)
	m := nftables.NewMonitor(nftables.WithMonitorAction(nftables.MonitorActionNew),
		nftables.WithMonitorObject(nftables.MonitorObjectElements))
	events, err := conn.AddGenerationalMonitor(m)
	c.must(err)
	b.Cleanup(func() { _ = m.Close() })
	out := make(chan time.Time, 1)
	go func() {
		for range events {
			out <- clock.Real().Now()
		}
	}()
	return out
}

// process is the proxy's program, run as a process.
type process struct {
	*cluster
	cmd     *exec.Cmd
	lines   *json.Decoder
	started time.Time
	pipe    io.Closer
}

func (c *cluster) process(b *testing.B) *process {
	program := filepath.Join(b.TempDir(), "proxy")
	if out, err := exec.Command("go", "build", "-o", program,
		"keelson.dev/keelson/cmd/proxy").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	read, write, err := os.Pipe()
	c.must(err)
	cmd := exec.Command(program, "--kubeconfig="+c.kubeconfig(), "--hostname-override=n1", "--cluster-cidr=10.244.0.0/14",
		"--healthz-bind-address=127.0.0.1:18080", "--metrics-bind-address=127.0.0.1:18081")
	cmd.Stderr = write
	p := &process{cluster: c, cmd: cmd, lines: json.NewDecoder(read), started: clock.Real().Now(), pipe: read}
	c.must(cmd.Start())
	c.must(write.Close())
	return p
}

// ready waits until the table of the first IP family exists, and returns how long that took.
func (p *process) ready() time.Duration {
	for {
		var line struct{ Msg, Family string }
		p.must(p.lines.Decode(&line))
		if line.Msg == "Nftables table created" && line.Family == "IPv4" {
			go func() { // reads the output, so that the process never blocks on it
				for p.lines.Decode(&line) == nil {
				}
			}()
			return clock.Real().Now().Sub(p.started)
		}
	}
}

// end kills the process and removes its tables.
func (p *process) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	_ = p.pipe.Close()
	for _, f := range []ruleset.Family{ruleset.IPv4, ruleset.IPv6} {
		k, err := kernel.Open(kernel.Config{Family: f})
		p.must(err)
		p.must(errors.Join(k.Remove(), k.Close()))
	}
}

func (p *process) proc(file string) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, file))
	p.must(err)
	return string(data)
}

// cpu returns the CPU time that the process has used, in units of 10 ms.
func (p *process) cpu() time.Duration {
	var user, system int
	stat := strings.Fields(p.proc("stat")[strings.LastIndex(p.proc("stat"), ")"):])
	_, err := fmt.Sscan(stat[12]+" "+stat[13], &user, &system)
	p.must(err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory returns a field of the process's /proc/PID/status in MB.
func (p *process) memory(field string) float64 {
	_, rest, _ := strings.Cut(p.proc("status"), field+":")
	var kib float64
	_, err := fmt.Sscan(rest, &kib)
	p.must(err)
	return kib / 1024
}

// number returns the value of one of the process's metrics.
func (p *process) number(name, labels string) float64 {
	out, err := exec.Command("curl", "-sf", "http://127.0.0.1:18081/metrics").Output()
	p.must(err)
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(line, name+"{"+labels+"} "); ok {
			var v float64
			_, err := fmt.Sscan(rest, &v)
			p.must(err)
			return v
		}
	}
	p.t.Errorf("no metric %s{%s}", name, labels)
	return 0
}
