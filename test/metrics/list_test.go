// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// documented is Kubernetes' list of metrics. Each line has one metric of one process: level,
// process, type, name, labels and buckets. "-" stands for no labels or no buckets.
//
// TestUpdate generates the file from the list in Kubernetes' source tree:
//
//	go test ./test/metrics -run Update -kubernetes $(go list -m -f '{{.Dir}}' k8s.io/kubernetes)
//
//go:embed testdata/kubernetes.txt
var documented string

// later corrects the list in documented, which is that of Kubernetes 1.36. It has rows for
// metrics that have changed since, and for metrics that Kubernetes has but does not list. A row of later
// replaces the row with the same process and name.
//
//go:embed testdata/later.txt
var later string

// row is a metric of a process.
type row struct {
	level, process, kind, name string
	labels, buckets            []string
}

func (r *row) String() string {
	return strings.Join([]string{r.level, r.process, r.kind, r.name, joined(r.labels), joined(r.buckets)}, " ")
}

func joined(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ",")
}

func parse(t *testing.T, text string) []row {
	t.Helper()
	var out []row
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) != 6 {
			t.Fatalf("line %q has %d fields", line, len(f))
		}
		split := func(s string) []string {
			if s == "-" {
				return nil
			}
			return strings.Split(s, ",")
		}
		out = append(out, row{f[0], f[1], f[2], f[3], split(f[4]), split(f[5])})
	}
	return out
}

// list returns all rows, with those of later applied.
func list(t *testing.T) []row {
	t.Helper()
	changed := parse(t, later)
	out := slices.DeleteFunc(parse(t, documented), func(r row) bool {
		return slices.ContainsFunc(changed, func(c row) bool { return c.process == r.process && c.name == r.name })
	})
	return append(out, changed...)
}

var tree = flag.String("kubernetes", "", "directory of Kubernetes' source, to renew testdata/kubernetes.txt")

// metric is an entry in the list of Kubernetes' source tree.
type metric struct {
	Name, Subsystem, Namespace, Type, StabilityLevel, DeprecatedVersion string
	Labels                                                              []string
	Buckets                                                             []any
	ComponentEndpoints                                                  []struct{ Component, Endpoint string }
}

// wanted has the name prefixes of the ALPHA metrics that Keelson must have, too.
var wanted = []string{
	"workqueue_", "rest_client_", "leader_election_", "scheduler_", "storage_operation_", "volume_", "etcd_request",
	"apiserver_admission_", "apiserver_storage_", "apiserver_request", "kubelet_image", "kubelet_pleg_", "kubelet_pod_",
	"kubelet_running_", "kubelet_runtime_", "kubelet_volume_", "kubelet_certificate_", "kubelet_server_",
	"kubelet_cgroup_manager_", "kubelet_evictions", "kubelet_node_name", "kubeproxy_", "aggregator_unavailable_",
	"apiserver_client_certificate_", "retroactive_storageclass_", "endpoint_slice_", "attach", "job_controller_",
}

// TestUpdate generates testdata/kubernetes.txt if the flag -kubernetes is set.
func TestUpdate(t *testing.T) {
	if *tree == "" {
		return // the flag is not set
	}
	b, err := os.ReadFile(filepath.Join(*tree, "test/instrumentation/documentation/documentation-list.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []metric
	if err := yaml.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range all {
		parts := slices.DeleteFunc([]string{m.Namespace, m.Subsystem, m.Name}, func(s string) bool { return s == "" })
		r := row{level: m.StabilityLevel, kind: strings.ToLower(m.Type), name: strings.Join(parts, "_"), labels: m.Labels}
		if m.DeprecatedVersion != "" || m.StabilityLevel == "ALPHA" &&
			!slices.ContainsFunc(wanted, func(p string) bool { return strings.HasPrefix(r.name, p) }) {
			continue
		}
		slices.Sort(r.labels)
		for _, bucket := range m.Buckets {
			v, err := strconv.ParseFloat(fmt.Sprint(bucket), 64)
			if err != nil {
				t.Fatal(err)
			}
			r.buckets = append(r.buckets, strconv.FormatFloat(v, 'g', -1, 64))
		}
		for _, at := range m.ComponentEndpoints {
			r.process = strings.TrimPrefix(at.Component, "kube-")
			if slices.Contains(processes, r.process) {
				lines = append(lines, r.String())
			}
		}
	}
	slices.Sort(lines)
	var out bytes.Buffer
	out.WriteString("# From Kubernetes' test/instrumentation/documentation/documentation-list.yaml by TestUpdate.\n")
	for _, l := range slices.Compact(lines) {
		fmt.Fprintln(&out, l)
	}
	if err := os.WriteFile("testdata/kubernetes.txt", out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
