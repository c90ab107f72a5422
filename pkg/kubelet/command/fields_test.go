// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// fieldsRead returns the fields of a KubeletConfiguration that the kubelet's sources read. It finds
// them as selectors on a variable c or on a field named Kubelet.
func fieldsRead(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		if base := filepath.Base(path); filepath.Dir(path) == "../command" && (base == "defaults.go" || base == "fields.go") {
			return nil // these files only set defaults and reject values
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch x := s.X.(type) {
			case *ast.Ident:
				out[s.Sel.Name] = out[s.Sel.Name] || x.Name == "c"
			case *ast.SelectorExpr:
				out[s.Sel.Name] = out[s.Sel.Name] || x.Sel.Name == "Kubelet"
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestEveryField checks for each field of the configuration that the kubelet reads it, that it is
// listed as having no effect, or that the kubelet rejects values of it.
func TestEveryField(t *testing.T) {
	refused := []string{"CgroupsPerQOS", "DefaultPodSysctls", "EnableControllerAttachDetach", "KubeletCgroups",
		"SystemCgroups", "ReadOnlyPort", "RunOnce"}
	merged := []string{"MergeDefaultEvictionSettings"} // fields that only affect defaults
	read := fieldsRead(t)
	var has []string
	kind := reflect.TypeFor[kubeletconfig.KubeletConfiguration]()
	for i := range kind.NumField() {
		f := kind.Field(i)
		if f.Anonymous {
			continue
		}
		has = append(has, f.Name)
		_, reasoned := unread[f.Name]
		ways := 0
		for _, way := range []bool{read[f.Name], reasoned, slices.Contains(refused, f.Name),
			slices.Contains(merged, f.Name)} {
			if way {
				ways++
			}
		}
		if ways != 1 {
			t.Errorf("%s: read %t, reason %q, refused %t: want one of them", f.Name, read[f.Name],
				unread[f.Name], slices.Contains(refused, f.Name))
		}
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(unread)), refused, merged) {
		if !slices.Contains(has, name) {
			t.Errorf("%s is no field", name)
		}
	}
}

func configured(t *testing.T, text string) (*kubeletconfig.KubeletConfiguration, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubelet.yaml")
	if err := os.WriteFile(file,
		[]byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	return load(file)
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"cgroupsPerQOS: false":                                      "cgroupsPerQOS",
		"enableControllerAttachDetach: false":                       "enableControllerAttachDetach",
		"enableSystemLogQuery: true\nenableSystemLogHandler: false": "enableSystemLogQuery",
		"kubeletCgroups: /k":                                        "kubeletCgroups",
		"systemCgroups: /s":                                         "systemCgroups",
		"readOnlyPort: 10255":                                       "readOnlyPort",
		"runOnce: true":                                             "runOnce",
		"podsPerCore: -1":                                           "podsPerCore",
		"eventRecordQPS: -1":                                        "eventRecordQPS",
		"eventBurst: -1":                                            "eventBurst",
		`defaultPodSysctls: {"net.ipv4.ip_forward": "1"}`:           "defaultPodSysctls",
		"oomScoreAdj: 1001":                                         "oomScoreAdj",
		"podLogsDir: logs":                                          "podLogsDir",
		"podLogsDir: /var/../logs":                                  "podLogsDir",
		"podLogsDir: /var/log/pöds":                                 "podLogsDir",
		"crashLoopBackOff: {maxContainerRestartPeriod: 301s}":       "crashLoopBackOff.maxContainerRestartPeriod",
		"crashLoopBackOff: {maxContainerRestartPeriod: 500ms}":      "crashLoopBackOff.maxContainerRestartPeriod",
	} {
		if _, err := configured(t, text); err == nil || !strings.Contains(err.Error(), want+": Invalid value") {
			t.Errorf("%s: error %v", text, err)
		}
	}
	for _, text := range []string{"podLogsDir: /var/log/pods/", "readOnlyPort: 0", "eventRecordQPS: 0",
		"oomScoreAdj: -1000", "crashLoopBackOff: {maxContainerRestartPeriod: 1s}"} {
		if _, err := configured(t, text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestIgnored(t *testing.T) {
	c, err := configured(t, "syncFrequency: 10s\nlogging: {format: text}\nvolumeStatsAggPeriod: 1m\nmaxPods: 5\n")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ignored(c), []string{"Logging", "SyncFrequency", "VolumeStatsAggPeriod"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if c, err = configured(t, ""); err != nil || len(ignored(c)) > 0 {
		t.Errorf("warnings %v with defaults (%v)", ignored(c), err)
	}
}

func TestDefaults(t *testing.T) {
	all := map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
		"imagefs.available": "15%", "imagefs.inodesFree": "5%"}
	for name, tc := range map[string]struct {
		text   string
		hard   map[string]string
		report time.Duration
	}{
		"no settings": {"", all, 5 * time.Minute},
		"some thresholds": {"evictionHard: {memory.available: 1Gi}",
			map[string]string{"memory.available": "1Gi"}, 5 * time.Minute},
		"some thresholds, others by default": {
			"evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true",
			func() map[string]string { m := maps.Clone(all); m["memory.available"] = "1Gi"; return m }(), 5 * time.Minute},
		"update period only": {"nodeStatusUpdateFrequency: 20s", all, 20 * time.Second},
		"both periods": {"nodeStatusUpdateFrequency: 20s\nnodeStatusReportFrequency: 1m",
			all, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := configured(t, tc.text)
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(c.EvictionHard, tc.hard) {
				t.Errorf("thresholds %v", c.EvictionHard)
			}
			if got := c.NodeStatusReportFrequency; got != (metav1.Duration{Duration: tc.report}) {
				t.Errorf("the status is reported each %v", got.Duration)
			}
			if c.RuntimeRequestTimeout.Duration != 2*time.Minute || c.PodLogsDir != "/var/log/pods" ||
				*c.EventRecordQPS != 50 || c.EventBurst != 100 || *c.OOMScoreAdj != -999 {
				t.Error("defaults are not Kubernetes'")
			}
		})
	}
}

func TestCheckKernel(t *testing.T) {
	root := t.TempDir()
	set := func(name, value string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{"vm/overcommit_memory": "1", "vm/panic_on_oom": "0",
		"kernel/panic": "10", "kernel/panic_on_oops": "1", "kernel/keys/root_maxkeys": "1000000",
		"kernel/keys/root_maxbytes": "25000000"} {
		set(name, value)
	}
	if err := checkKernel(root); err != nil {
		t.Error(err)
	}
	set("kernel/panic", "0")
	set("vm/overcommit_memory", "2")
	want := "invalid kernel flag: kernel/panic, expected value: 10, actual value: 0\ninvalid kernel flag: " +
		"vm/overcommit_memory, expected value: 1, actual value: 2"
	if err := checkKernel(root); err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
}
