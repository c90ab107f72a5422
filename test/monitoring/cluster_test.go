// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	clusterName = "monitoring"
	// patience is how long the test waits for something that it has caused. It must be longer than the times after
	// which the shortened alerts fire.
	patience = 12 * time.Minute
)

// TestCluster checks the alerts beside a real cluster with two nodes. While the cluster is healthy, no alert may be
// pending or firing. Then the test breaks several things at once, and exactly the right alerts must fire.
//
// KEELSON_MONITORING is how long the cluster runs healthy with Prometheus. Before that, it runs without Prometheus for
// a third of that time. The test logs the CPU time and memory of the processes in both periods.
func TestCluster(t *testing.T) {
	text := os.Getenv("KEELSON_MONITORING")
	if text == "" {
		t.Skip("KEELSON_MONITORING is not set")
	}
	healthy, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t)
	l.ctl("apply", "-f", "testdata/work.yaml")
	l.ctl("wait", "-n", "work", "--for=condition=Ready", "pod", "-l", "app", "--timeout=2m")

	without := l.usage(healthy / 3)
	p := l.prometheus(ruleAt)
	l.eventually("all processes answer, and no alert is pending", func() bool {
		return p.value(t, `count(up == 1)`) == targets && p.value(t, `count(up)`) == targets && len(p.query(t, "ALERTS")) == 0
	})
	began := time.Now()
	with := l.usage(healthy)
	for _, a := range p.query(t, "max_over_time(ALERTS["+time.Since(began).Round(time.Second).String()+"])") {
		t.Errorf("alert of the healthy cluster: %v", a.Metric)
	}
	logUsage(t, without, with)
	checkSeries(t, p)
	p.stop()

	p = l.prometheus(shortened(t))
	l.eventually("all processes answer", func() bool { return p.value(t, `count(up == 1)`) == targets })
	l.breakThings()
	var firing []string
	l.eventually("the right alerts fire", func() bool {
		firing = p.firing(t)
		return !slices.ContainsFunc(expected, func(a string) bool { return !slices.Contains(firing, a) })
	})
	for _, a := range firing {
		if !slices.Contains(expected, a) {
			t.Errorf("the alert %q fires, too", a)
		}
	}
}

// targets is the number of targets of Prometheus: API server, controller manager and scheduler, and for each of the two
// nodes the proxy and four paths of the kubelet.
const targets = 3 + 2*5

// expected has the alerts that the faults of breakThings cause, with the node or the volume.
var expected = []string{
	"KubeNodeNotReady warning",
	"KubeNodeUnreachable warning n2",
	"KubePersistentVolumeFillingUp critical n1 full",
	"KubePodCrashLooping warning n1",
	"KubeProxyInstanceUnreachable warning n2",
	"KubeSchedulerDown critical",
	"KubeSchedulerInstanceUnreachable warning",
	"KubeletInstanceUnreachable warning n2",
}

// shortened returns the path of a copy of the rules in which alerts fire after 6 instead of 15 minutes. promtool tests
// the real times. Five minutes would be too short: the controller manager calls the killed node until that node is
// found not ready, and KubeClientErrors looks at the calls of the last five minutes.
func shortened(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(ruleAt)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	data = bytes.ReplaceAll(data, []byte("for: 15m\n"), []byte("for: 6m\n"))
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// lab is the cluster of the test.
type lab struct {
	t                    *testing.T
	program, dir, config string
}

// newLab starts the cluster. The cluster ends with the test.
func newLab(t *testing.T) *lab {
	t.Helper()
	program, err := filepath.Abs(root + "/bin/ctl")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l := &lab{t: t, program: program, dir: dir, config: filepath.Join(dir, "kubeconfig")}
	t.Cleanup(func() {
		out, err := exec.Command(program, "cluster", "down", "--name", clusterName).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	l.ctl("cluster", "up", "--name", clusterName, "--nodes", "2", "--data-dir", filepath.Join(dir, "data"),
		"--kubeconfig", l.config)
	return l
}

// ctl runs ctl and returns its output.
func (l *lab) ctl(args ...string) string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, l.program, args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+l.config, "HOME="+l.dir)
	out, err := c.CombinedOutput()
	if err != nil {
		l.t.Fatalf("ctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// pids returns the IDs of the cluster's processes by name.
func (l *lab) pids() (pids map[string]int) {
	l.t.Helper()
	out := l.ctl("cluster", "pids", "--name", clusterName, "-o", "json")
	if err := json.Unmarshal([]byte(out), &pids); err != nil {
		l.t.Fatalf("%v in %s", err, out)
	}
	return pids
}

// eventually calls ok repeatedly until it returns true.
func (l *lab) eventually(what string, ok func() bool) {
	l.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			l.t.Fatalf("still waiting after %v: %s", patience, what)
		}
	}
}

// breakThings starts pods that fail and a pod that fills its volume, kills the node n2, and stops the scheduler with a
// signal, so that it hangs.
func (l *lab) breakThings() {
	l.t.Helper()
	l.ctl("apply", "-f", "testdata/faults.yaml")
	l.ctl("wait", "-n", "work", "--for=condition=Ready", "pod/full", "--timeout=2m")
	l.ctl("wait", "-n", "work", "--for=condition=PodScheduled", "pod", "-l", "app=crash", "--timeout=2m")
	scheduler := l.pids()["scheduler"]
	if err := syscall.Kill(scheduler, syscall.SIGSTOP); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = syscall.Kill(scheduler, syscall.SIGCONT) }) // it ends with the cluster
	l.ctl("cluster", "node", "kill", "n2", "--name", clusterName)
}

// eventful has the metrics that have no series in a healthy cluster, with the event that creates the first one.
var eventful = map[string]string{
	"aggregator_unavailable_apiservice_total":     "an aggregated API server does not answer",
	"apiserver_request_terminations_total":        "the API server refuses a request, or a request takes too long",
	"kubelet_evictions":                           "a kubelet evicts a pod",
	"keelson_admission_webhook_calls_total":       "a webhook is called",
	"keelson_admission_webhook_circuit_open":      "a webhook is called",
	"keelson_admission_webhook_failures_total":    "the call of a webhook fails",
	"keelson_admission_webhook_passed_over_total": "the API server skips a failing webhook",
	"keelson_audit_dropped_events_total":          "the API server starts with an audit webhook",
	"keelson_audit_queue_events":                  "the API server starts with an audit webhook",
	"keelson_audit_spill_bytes":                   "the API server starts with an audit webhook",
	"keelson_ingress_refused_total":               "the cluster starts with the ingress proxy",
	"keelson_ingress_requests_total":              "the cluster starts with the ingress proxy",
	"keelson_networkpolicy_sync_failures_total":   "the kernel rejects a network policy",
}

var (
	selector = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_:]*)\{[^}]*\}`)
	outcome  = regexp.MustCompile(`,?(code|exit_code)(=~|!=)"[^"]*"`)
)

// checkSeries checks that each selector of the rules and the dashboard selects a series of a real cluster. A selector
// with a wrong label would select nothing, and its alert would never fire.
func checkSeries(t *testing.T, p *prometheus) {
	t.Helper()
	for place, list := range expressions(t) {
		for _, expr := range list {
			expr = strings.ReplaceAll(expr, "$cluster", clusterName)
			for _, s := range selector.FindAllStringSubmatch(expr, -1) {
				found := len(p.query(t, "last_over_time("+outcome.ReplaceAllString(s[0], "")+"[5m])")) > 0
				if found == (eventful[s[1]] != "") {
					t.Errorf("%s: series of %s: %v", place, s[0], found)
				}
			}
		}
	}
}
