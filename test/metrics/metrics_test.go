// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/kubelet/cri"
	kubeletmetrics "keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/podresources"
	"keelson.dev/keelson/pkg/proxy"
	"keelson.dev/keelson/pkg/scheduler"
	"keelson.dev/keelson/pkg/scheduler/profile"
)

// processes has the names of the processes in Kubernetes' list.
var processes = []string{"apiserver", "controller-manager", "scheduler", "kubelet", "proxy"}

// titles has, for each process, the sections of docs/reference/metrics.md with its metrics.
var titles = map[string][]string{
	"apiserver": {"Every process", "API server"}, "controller-manager": {"Every process", "Controller manager"},
	"scheduler": {"Every process", "Scheduler"}, "kubelet": {"Every process", "Kubelet"},
	"proxy": {"Every process", "Proxy"},
}

// TestKubernetesMetrics checks that each process has the metrics that Kubernetes documents for it.
// For a metric that is missing, the map missing must have the reason.
func TestKubernetesMetrics(t *testing.T) {
	page, registered := documentedBy(t), map[string]map[string]definition{
		"scheduler": schedulerMetrics(t), "controller-manager": controllerMetrics(t), "proxy": proxyMetrics(t),
		"kubelet": kubeletMetrics(t),
	}
	used := map[string]bool{}
	for _, want := range list(t) {
		key := want.process + " " + want.name
		used[key], used[want.name] = true, true
		reason := missing[want.name]
		if reason == "" {
			reason = missing[key]
		}
		level, known := page[want.process][want.name]
		have, seen := registered[want.process][want.name]
		switch {
		case library(want.name):
			continue
		case reason != "" && (known || seen):
			t.Errorf("%s: %s is in the table of missing metrics but exists", want.process, want.name)
		case reason != "":
			continue
		case !known && !seen:
			t.Errorf("%s lacks %s", want.process, &want)
			continue
		case seen && have.level != want.level, !seen && level != want.level && !cadvisor(want.name):
			t.Errorf("%s: the level of %s is %q, want %s", want.process, want.name, cmp.Or(have.level, level), want.level)
		}
		if seen {
			compare(t, &want, have)
		}
	}
	for name := range missing {
		if !used[name] {
			t.Errorf("the table of missing metrics has %s, which is not in Kubernetes' list", name)
		}
	}
}

func compare(t *testing.T, want *row, have definition) {
	t.Helper()
	if have.kind != "" && want.kind != "custom" && have.kind != want.kind {
		t.Errorf("%s: %s is a %s, want a %s", want.process, want.name, have.kind, want.kind)
	}
	if !slices.Equal(have.labels, want.labels) {
		t.Errorf("%s: %s has labels %v, want %v", want.process, want.name, have.labels, want.labels)
	}
	if len(want.buckets) > 0 && have.buckets != nil && !slices.EqualFunc(have.buckets, want.buckets, sameBucket) {
		t.Errorf("%s: %s has buckets %v, want %v", want.process, want.name, have.buckets, want.buckets)
	}
}

// sameBucket reports whether two bucket limits are equal, except for rounding errors.
func sameBucket(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && math.Abs(x-y) <= 1e-9*math.Abs(x)
}

// cadvisor reports whether the kubelet has two metrics with the name: one at /metrics/resource, and
// one without a level at /metrics/cadvisor.
func cadvisor(name string) bool { return strings.HasPrefix(name, "container_") }

// TestLibraries checks that Kubernetes' libraries register the documented metrics that the
// processes do not register themselves.
func TestLibraries(t *testing.T) {
	s := testserver.Start(t, testserver.Options{}) // some libraries register metrics only when they are used
	scraped, err := s.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range list(t) {
		if !library(want.name) || hasPrefix(want.name, unseen) || missing[want.name] != "" ||
			strings.Contains(string(scraped), "# HELP "+want.name+" ") {
			continue
		}
		other := prometheus.NewGauge(prometheus.GaugeOpts{Name: want.name, Help: "another help text"})
		if err := legacyregistry.Registerer().Register(other); err == nil {
			t.Errorf("no library registers %s", want.name)
		}
	}
}

// library reports whether a metric is registered by one of Kubernetes' libraries that Keelson uses.
// These are client-go (through component-base) and, in the API server, the libraries for admission
// webhooks and policies, CEL, flow control, authentication and audit.
func library(name string) bool { return hasPrefix(name, libraries) }

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

var pageRow = regexp.MustCompile("^\\| `([^`]+)` \\| [^|]* \\| (\\w*) \\|")

// documentedBy returns the metrics in docs/reference/metrics.md with their levels, by process.
// TestReference of test/docs generates that page from the source.
func documentedBy(t *testing.T) map[string]map[string]string {
	t.Helper()
	b, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]map[string]string{}
	title := ""
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			title = strings.TrimSpace(name)
			sections[title] = map[string]string{}
		} else if f := pageRow.FindStringSubmatch(line); f != nil {
			sections[title][f[1]] = strings.ToUpper(f[2])
		}
	}
	out := map[string]map[string]string{}
	for process, names := range titles {
		out[process] = map[string]string{}
		for _, title := range names {
			for name, level := range sections[title] {
				for _, part := range parts {
					out[process][strings.ReplaceAll(name, "…", part)] = level
				}
			}
		}
	}
	return out
}

// parts has the texts that programs insert for "…" in the names of metrics on the page.
var parts = []string{"client", "server", "node", "pod", "container", "daemonset_controller", "replicaset_controller",
	"job_controller", "statefulset_controller"}

// offline returns a client that the tests never use for requests.
func offline(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func schedulerMetrics(t *testing.T) map[string]definition {
	t.Helper()
	client := offline(t)
	set, err := profile.Build(&configv1.KubeSchedulerConfiguration{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder(t)
	s, err := scheduler.New(scheduler.Config{Client: client, Profiles: set, Clock: clock.Real(),
		Rand: rand.New(rand.NewPCG(1, 1)), Log: slog.New(slog.DiscardHandler), Metrics: r})
	if err != nil {
		t.Fatal(err)
	}
	r.MustRegister(s.PodResources())
	return r.found
}

func controllerMetrics(t *testing.T) map[string]definition {
	t.Helper()
	client := offline(t)
	r := newRecorder(t)
	for _, e := range controllers.Table() {
		d := controller.Deps{
			Client: client, Discovery: client.Discovery(), Informers: controller.NewInformers(client, 0), Clock: clock.Real(),
			Log: slog.New(slog.DiscardHandler), Metrics: r, Options: controller.Options{},
		}
		if e.Enabled != nil && !e.Enabled(d.Options) {
			continue
		}
		if _, err := e.New(d); err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
	}
	return r.found
}

func proxyMetrics(t *testing.T) map[string]definition {
	t.Helper()
	client := offline(t)
	r := newRecorder(t)
	if _, err := proxy.New(proxy.Config{Node: "n"}, proxy.Deps{Client: client, Clock: clock.Real(),
		Log: slog.New(slog.DiscardHandler), Metrics: r}); err != nil {
		t.Fatal(err)
	}
	return r.found
}

// kubeletMetrics returns the metrics of those parts of the kubelet that can be created without a
// node.
func kubeletMetrics(t *testing.T) map[string]definition {
	t.Helper()
	r := newRecorder(t)
	cri.NewMetrics(clock.Real(), r)
	kubeletmetrics.NewPods(r)
	kubeletmetrics.NewNode(r)
	kubeletmetrics.NewStorage(r)
	podresources.New("", nil, r)
	return r.found
}
