// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	root   = "../.."
	ruleAt = root + "/hack/monitoring/rules.yaml"
	testAt = root + "/hack/monitoring/rules_test.yaml"
)

// libraries has metrics of libraries that the rules use but docs/reference/metrics.md does not
// list. The value is the library.
var libraries = map[string]string{
	"aggregator_unavailable_apiservice":               "k8s.io/kube-aggregator",
	"aggregator_unavailable_apiservice_total":         "k8s.io/kube-aggregator",
	"apiserver_client_certificate_expiration_seconds": "k8s.io/apiserver, authentication",
	"apiserver_flowcontrol_current_inqueue_requests":  "k8s.io/apiserver, flow control",
	"go_goroutines":              "client_golang",
	"process_cpu_seconds_total":  "client_golang",
	"rest_client_requests_total": "component-base",
	"up":                         "Prometheus",
	"workqueue_depth":            "component-base",
	"workqueue_longest_running_processor_seconds": "component-base",
	"workqueue_queue_duration_seconds":            "component-base",
}

// rules has the fields of a Prometheus rules file that the tests read.
type rules struct {
	Groups []struct {
		Rules []struct {
			Alert  string            `json:"alert"`
			Record string            `json:"record"`
			Expr   string            `json:"expr"`
			Labels map[string]string `json:"labels"`
		} `json:"rules"`
	} `json:"groups"`
}

func readRules(t *testing.T) (r rules) {
	t.Helper()
	data, err := os.ReadFile(ruleAt)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// expressions returns the PromQL expressions of the rules and the dashboard. The key says where
// each is.
func expressions(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			out[r.Alert+r.Record] = append(out[r.Alert+r.Record], r.Expr)
		}
	}
	data, err := os.ReadFile(root + "/hack/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %q shows nothing", p.Title)
		}
		for _, each := range p.Targets {
			out["panel "+p.Title] = append(out["panel "+p.Title], each.Expr)
		}
	}
	return out
}

var (
	noName = regexp.MustCompile(`"(\\.|[^"\\])*"|\{[^}]*\}|\[[^]]*\]|\b(by|on|without|ignoring)\s*\([^)]*\)`)
	quoted = regexp.MustCompile(`"(\\.|[^"\\])*"`)
	word   = regexp.MustCompile(`[a-zA-Z_][a-zA-Z0-9_:]*\s*\(?`)
	suffix = regexp.MustCompile(`_(bucket|count|sum)$`)
)

// names returns the metric names in a PromQL expression.
func names(expr string) (out []string) {
	expr = noName.ReplaceAllString(quoted.ReplaceAllString(expr, ""), " ")
	for _, w := range word.FindAllString(expr, -1) {
		function := strings.HasSuffix(w, "(")
		w = strings.TrimSpace(strings.TrimSuffix(w, "("))
		if !function && w != "e" || function && slices.Contains([]string{"and", "or", "unless"}, w) {
			if !slices.Contains([]string{"and", "or", "unless"}, w) {
				out = append(out, w)
			}
		}
	}
	return out
}

func TestNames(t *testing.T) {
	for expr, want := range map[string]string{
		`up == 0`:                    "up",
		`absent(up{job="a}b"} == 1)`: "up",
		`sum by (cluster, le) (rate(a_bucket{x=~"1(\\.0)?"}[5m])) > 14.4 * 0.01`: "a_bucket",
		`a / (b > 0) and on (cluster) (c) or d unless e2`:                        "a b c d e2",
		"avg_over_time(x:y:rate5m[1h])\n/ 2 ^ 30":                                "x:y:rate5m",
	} {
		if got := strings.Join(names(expr), " "); got != want {
			t.Errorf("metrics of %s: %q, want %q", expr, got, want)
		}
	}
}

// TestMetrics checks that each metric in an expression is a metric of Keelson or of a library.
func TestMetrics(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var known []*regexp.Regexp
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(m[1]), "…", "[a-z_]+")
		known = append(known, regexp.MustCompile("^"+pattern+"$"))
	}
	if len(known) == 0 {
		t.Fatal("docs/reference/metrics.md has no metrics")
	}
	recorded, used := map[string]bool{}, map[string]bool{}
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				recorded[r.Record] = true
			}
		}
	}
	for place, list := range expressions(t) {
		for _, expr := range list {
			found := names(expr)
			if len(found) == 0 {
				t.Errorf("%s: no metric in %s", place, expr)
			}
			for _, name := range found {
				base := suffix.ReplaceAllString(name, "")
				used[name], used[base] = true, true
				is := func(re *regexp.Regexp) bool { return re.MatchString(name) || re.MatchString(base) }
				if !recorded[name] && libraries[name] == "" && libraries[base] == "" && !slices.ContainsFunc(known, is) {
					t.Errorf("%s: there is no metric %s", place, name)
				}
			}
		}
	}
	for name := range recorded {
		if !used[name] {
			t.Errorf("the recording rule %s is not used", name)
		}
	}
	for name := range libraries {
		if !used[name] {
			t.Errorf("the metric %s of a library is not used", name)
		}
	}
}

// TestAlertsHaveTests checks that, for each alert and severity, rules_test.yaml has a case in which it fires.
func TestAlertsHaveTests(t *testing.T) {
	cases, err := os.ReadFile(testAt)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			want := `{alertname="` + r.Alert + `", severity="` + r.Labels["severity"] + `"}`
			if r.Alert != "" && !strings.Contains(string(cases), want) {
				t.Errorf("no case in which %s fires", want)
			}
		}
	}
}

// TestRules runs the cases in rules_test.yaml with promtool. It is skipped if promtool is not
// installed. hack/test.sh installs promtool unless it runs with -short.
func TestRules(t *testing.T) {
	if out, err := exec.Command(promtool(t), "test", "rules", testAt).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func promtool(t *testing.T) string {
	t.Helper()
	file, err := exec.LookPath("promtool")
	if err != nil {
		file, err = filepath.Abs(root + "/.build/monitoring/root/usr/bin/promtool")
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Skip("promtool is missing; hack/monitoring/test.sh gets it")
	}
	return file
}
