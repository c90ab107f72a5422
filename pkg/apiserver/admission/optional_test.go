// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// optionalServer runs a server with the plugins in enable, which are off by default. settings are
// their entries in the AdmissionConfiguration.
func optionalServer(t *testing.T, settings string, enable ...string) *testserver.Server {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "admission.yaml")
	if err := os.WriteFile(file,
		[]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+settings),
		0o600); err != nil {
		t.Fatal(err)
	}
	selectors := "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: env=cluster, allowed: 'env=cluster,a=b'}\n"
	if err := os.WriteFile(filepath.Join(dir, "selectors.yaml"), []byte(selectors), 0o600); err != nil {
		t.Fatal(err)
	}
	return testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.EnableAdmission = append(c.EnableAdmission, enable...)
		c.DisableAdmission = append(c.DisableAdmission, "ServiceAccount", "DefaultTolerationSeconds")
		c.AdmissionConfig = file
	}})
}

// create creates a pod in a new namespace with the given annotations.
func create(t *testing.T, s *testserver.Server, namespace string, annotations map[string]string,
	p *corev1.Pod) (*corev1.Pod, error) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Annotations: annotations}}
	if _, err := s.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return s.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
}

// refused checks that err has the text want, or is nil if want is empty.
func refused(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestPodNodeSelector checks that pods get the node selector of their namespace, or the default one
// of the configuration. Pods whose own node selector conflicts with it are rejected.
func TestPodNodeSelector(t *testing.T) {
	s := optionalServer(t, "- {name: PodNodeSelector, path: selectors.yaml}\n", "PodNodeSelector")
	const annotation = "scheduler.alpha.kubernetes.io/node-selector"
	for i, tc := range []struct {
		namespace   string
		annotations map[string]string
		selector    map[string]string
		want        map[string]string
		refused     string
	}{
		{"plain", nil, nil, map[string]string{"env": "cluster"}, ""},
		{"own", map[string]string{annotation: "env=own"}, map[string]string{"x": "y"},
			map[string]string{"env": "own", "x": "y"}, ""},
		{"own", nil, map[string]string{"env": "x"}, nil,
			`pods "p" is forbidden: pod node label selector conflicts with its namespace node label selector`},
		{"none", map[string]string{annotation: ""}, nil, nil, ""},
		{"allowed", nil, map[string]string{"a": "b"}, map[string]string{"env": "cluster", "a": "b"}, ""},
		{"allowed", nil, map[string]string{"a": "c"}, nil,
			`pods "p" is forbidden: pod node label selector labels conflict with its namespace whitelist`},
		{"broken", map[string]string{annotation: "a in (b)"}, nil, nil, `invalid selector: [a in (b)]`},
	} {
		p := pod("p", func(p *corev1.Pod) { p.Spec.NodeSelector = tc.selector })
		if tc.refused == "" {
			p.Name = fmt.Sprint("p", i)
		}
		got, err := create(t, s, tc.namespace, tc.annotations, p)
		if refused(t, err, tc.refused); err != nil {
			continue
		}
		if diff := cmp.Diff(tc.want, got.Spec.NodeSelector); diff != "" {
			t.Errorf("%s: %s", tc.namespace, diff)
		}
	}
}

// TestPodTolerationRestriction checks that pods get the default tolerations of their namespace or
// of the configuration. Pods with tolerations that these do not allow are rejected.
func TestPodTolerationRestriction(t *testing.T) {
	s := optionalServer(t, `
- name: PodTolerationRestriction
  configuration:
    apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1
    kind: Configuration
    default: [{key: cluster, operator: Exists}]
    whitelist: [{key: cluster, operator: Exists}, {key: ok, operator: Exists}, {key: node.kubernetes.io/memory-pressure, operator: Exists}]
`, "PodTolerationRestriction")
	const (
		defaults = "scheduler.alpha.kubernetes.io/defaultTolerations"
		allowed  = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
	)
	exists := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	for i, tc := range []struct {
		namespace   string
		annotations map[string]string
		cpu         string
		own, want   []corev1.Toleration
		refused     string
	}{
		{"plain", nil, "", nil, []corev1.Toleration{exists("cluster", "")}, ""},
		{"plain", nil, "1", []corev1.Toleration{exists("ok", "NoSchedule"), exists("ok", ""), exists("cluster", "NoExecute")},
			[]corev1.Toleration{exists("ok", ""), exists("cluster", ""),
				exists("node.kubernetes.io/memory-pressure", "NoSchedule")}, ""},
		{"plain", nil, "", []corev1.Toleration{exists("bad", "")}, nil,
			`pod tolerations (possibly merged with namespace default tolerations) conflict with its cluster whitelist`},
		{"own", map[string]string{defaults: `[{"key":"ok","operator":"Equal","value":"v"}]`,
			allowed: `[{"key":"ok","operator":"Equal","value":"v"}]`}, "", nil,
			[]corev1.Toleration{{Key: "ok", Operator: corev1.TolerationOpEqual, Value: "v"}}, ""},
		{"plain", nil, "", []corev1.Toleration{exists("ok", "NoSchedule"), exists("ok", ""), exists("ok", "")},
			[]corev1.Toleration{exists("ok", ""), exists("cluster", "")}, ""},
		{"wide", map[string]string{defaults: `[{"key":"ok"},{"operator":"Exists"}]`, allowed: ""}, "", nil,
			[]corev1.Toleration{exists("", "")}, ""},
		{"own", nil, "", []corev1.Toleration{exists("cluster", "")}, nil,
			`pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist`},
		{"none", map[string]string{defaults: "null"}, "", nil, nil, ""},
		{"broken", map[string]string{defaults: "x"}, "", nil, nil, `invalid character 'x' looking for beginning of value`},
	} {
		p := pod(fmt.Sprint("p", i), func(p *corev1.Pod) {
			p.Spec.Tolerations = tc.own
			if tc.cpu != "" {
				p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(tc.cpu)}
			}
		})
		got, err := create(t, s, tc.namespace, tc.annotations, p)
		if refused(t, err, tc.refused); err != nil {
			continue
		}
		if diff := cmp.Diff(tc.want, got.Spec.Tolerations); diff != "" {
			t.Errorf("%s: %s", tc.namespace, diff)
		}
	}
}

// TestLimitPodHardAntiAffinityTopology checks that required anti-affinity is allowed only with the
// topology key kubernetes.io/hostname.
func TestLimitPodHardAntiAffinityTopology(t *testing.T) {
	s := optionalServer(t, "", "LimitPodHardAntiAffinityTopology")
	for key, want := range map[string]string{
		corev1.LabelHostname: "",
		"zone": `pods "p-zone" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey ` +
			`zone but only key kubernetes.io/hostname is allowed`,
	} {
		_, err := create(t, s, "default", nil, pod("p-"+strings.ReplaceAll(key, "/", "-"), func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
					{LabelSelector: &metav1.LabelSelector{}, TopologyKey: key}},
			}}
		}))
		refused(t, err, want)
	}
}

// TestNamespacePlugins checks that NamespaceAutoProvision creates missing namespaces, except in dry
// runs, and that NamespaceExists rejects writes to missing namespaces.
func TestNamespacePlugins(t *testing.T) {
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	t.Run("provision", func(t *testing.T) {
		s := optionalServer(t, "", "NamespaceAutoProvision")
		_, err := s.Client.CoreV1().ConfigMaps("new").Create(t.Context(), configMap("m", nil), dry)
		refused(t, err, `namespaces "new" not found`)
		_, err = s.Client.CoreV1().ConfigMaps("new").Create(t.Context(), configMap("m", nil), metav1.CreateOptions{})
		refused(t, err, "")
	})
	t.Run("exists", func(t *testing.T) {
		s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
			c.EnableAdmission, c.DisableAdmission = append(c.EnableAdmission, "NamespaceExists"),
				append(c.DisableAdmission, "NamespaceLifecycle")
		}})
		_, err := s.Client.CoreV1().ConfigMaps("nope").Create(t.Context(), configMap("m", nil), dry)
		refused(t, err, `namespaces "nope" not found`)
		_, err = s.Client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("m", nil), dry)
		refused(t, err, "")
	})
}

// TestEventRateLimit checks that the rate of each key is limited on its own, and that the error
// names all exceeded limits.
func TestEventRateLimit(t *testing.T) {
	s := optionalServer(t, `
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{type: Namespace, qps: 1, burst: 2, cacheSize: 2}, {type: User, qps: 1, burst: 1000}, {type: SourceAndObject, qps: 1, burst: 1}]
`, "EventRateLimit")
	event := func(object string, options metav1.CreateOptions) error {
		_, err := s.Client.CoreV1().Events("default").Create(t.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "e-"}, Source: corev1.EventSource{Component: "c"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: object},
		}, options)
		return err
	}
	for range 4 {
		refused(t, event("a", metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}), "")
	}
	var err error
	for range 20 {
		if err = event("a", metav1.CreateOptions{}); err != nil && strings.Contains(err.Error(), ", ") {
			break
		}
	}
	if want := "[limit reached on type Namespace for key default, limit reached on type SourceAndObject for " +
		"key cPoddefaulta]"; !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
