// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"
)

// scraped has the metrics of one process by name.
type scraped map[string]values

// values has the level of a metric, and whether a process has set it.
type values struct {
	Level string // "" if the help text has none
	Set   bool   // whether a series is not 0
}

// only has the STABLE and BETA metrics that TestWork sets in Kubernetes and not in Keelson, with the reason or the
// event that sets them in Keelson. The key is the process and the metric.
var only = map[string]string{
	"apiserver apiserver_current_inflight_requests": "it is not the maximum of the last second",
	"apiserver workqueue_retries_total":             "a sync of a controller in the API server fails",
	"scheduler workqueue_retries_total":             "a sync of a work queue of the scheduler fails",
}

// momentary are gauges that are 0 unless some work waits or is being done when they are read. Keelson must have them,
// but whether they are 0 is chance.
var momentary = []string{
	"apiserver_flowcontrol_current_inqueue_requests",
	"workqueue_depth",
	"workqueue_longest_running_processor_seconds",
	"workqueue_unfinished_work_seconds",
}

// TestBeside starts the control planes of Kubernetes and Keelson, lets both do the same work, and compares their
// metrics: a STABLE or BETA metric that is not 0 in Kubernetes must not be 0 in Keelson.
func TestBeside(t *testing.T) {
	if os.Getenv("KEELSON_BESIDE") == "" {
		t.Skip("KEELSON_BESIDE is not set: no control plane of Kubernetes is built")
	}
	theirs, ours := worked(t, "kubernetes"), worked(t, "keelson")
	compared := 0
	for _, process := range slices.Sorted(maps.Keys(theirs)) {
		for _, name := range slices.Sorted(maps.Keys(theirs[process])) {
			want := theirs[process][name]
			have, exists := ours[process][name]
			if want.Level != "STABLE" && want.Level != "BETA" || !want.Set {
				continue
			}
			compared++
			switch key := process + " " + name; {
			case slices.Contains(momentary, name):
				if !exists {
					t.Errorf("%s: %s %s is missing", process, want.Level, name)
				}
			case !have.Set && only[key] == "":
				t.Errorf("%s: %s %s is 0 or missing after work that sets it in Kubernetes", process, want.Level, name)
			case have.Set && only[key] != "":
				t.Errorf("%s: %s is set, but listed as not set", process, name)
			}
		}
	}
	t.Logf("%d metrics of Kubernetes are not 0", compared)
	if compared < 50 {
		t.Error("the work set too few of them")
	}
}

// worked starts a control plane with test/bench/beside.sh, runs TestWork against it in another process, and returns
// what it scraped from each process.
func worked(t *testing.T, which string) map[string]scraped {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "scraped.json")
	cmd := exec.Command("../bench/beside.sh", which, "-c", self, "-test.run", "^TestWork$", "-test.v")
	cmd.Env = append(os.Environ(), "PORT="+fmt.Sprint(firstPort), workFile+"="+file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", which, err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]scraped{}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

const (
	firstPort = 17730
	// workFile is the environment variable with the file to which TestWork writes what it has scraped.
	workFile = "KEELSON_BESIDE_FILE"
)

// ports has the processes that test/bench/beside.sh starts, with the distance of their port from the first.
var ports = map[string]int{"apiserver": 0, "scheduler": 1, "controller-manager": 2}

var levelOf = regexp.MustCompile(`^\[(\w+)\]`)

// scrape reads the metrics of all processes.
func scrape(t *testing.T, token string) map[string]scraped {
	t.Helper()
	out := map[string]scraped{}
	for process, offset := range ports {
		client, err := rest.UnversionedRESTClientFor(&rest.Config{
			Host: fmt.Sprintf("https://127.0.0.1:%d", firstPort+offset), BearerToken: token,
			TLSClientConfig: rest.TLSClientConfig{Insecure: true},
			ContentConfig:   rest.ContentConfig{NegotiatedSerializer: codec},
		})
		if err != nil {
			t.Fatal(err)
		}
		out[process] = scraped{}
		for _, path := range []string{"/metrics", "/metrics/slis", "/metrics/resources"} {
			if path == "/metrics/resources" && process != "scheduler" {
				continue
			}
			data, err := client.Get().AbsPath(path).DoRaw(t.Context())
			if err != nil {
				t.Fatal(process, path, err)
			}
			parser := expfmt.NewTextParser(model.LegacyValidation)
			families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
			if err != nil {
				t.Fatal(process, path, err)
			}
			for name, f := range families {
				v := values{Set: slices.ContainsFunc(f.GetMetric(), set)}
				if level := levelOf.FindStringSubmatch(f.GetHelp()); level != nil {
					v.Level = level[1]
				}
				out[process][name] = v
			}
		}
	}
	return out
}

// set reports whether the value of a series is not 0.
func set(m *dto.Metric) bool {
	return m.GetCounter().GetValue() != 0 || m.GetGauge().GetValue() != 0 || m.GetUntyped().GetValue() != 0 ||
		m.GetHistogram().GetSampleCount() != 0 || m.GetSummary().GetSampleCount() != 0
}
