// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"
)

type objects struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string][]byte
}

func (o objects) ConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	if data, ok := o.configMaps[name]; ok {
		return &v1.ConfigMap{Data: data}, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("configmap"), name)
}

func (o objects) Secret(_ context.Context, _, name string) (*v1.Secret, error) {
	if data, ok := o.secrets[name]; ok {
		return &v1.Secret{Data: data}, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("secret"), name)
}

func service(namespace, name, ip string, ports ...v1.ServicePort) *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

func ref(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

func ptr[T any](v T) *T { return &v }

func value(name, v string) v1.EnvVar { return v1.EnvVar{Name: name, Value: v} }

func from(name string, s v1.EnvVarSource) v1.EnvVar { return v1.EnvVar{Name: name, ValueFrom: &s} }

func field(path string) v1.EnvVarSource {
	return v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}
}

func limit(res, divisor string) v1.EnvVarSource {
	return v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: res,
		Divisor: resource.MustParse(divisor)}}
}

func input(dir string) Input {
	return Input{
		Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u",
				Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"a": "b\"c"}},
			Spec: v1.PodSpec{NodeName: "n1", ServiceAccountName: "sa", EnableServiceLinks: ptr(false)},
		},
		Container: &v1.Container{Name: "c"},
		PodIPs:    []string{"10.0.0.1", "fd00::1"},
		HostIPs:   []string{"10.50.0.11"},
		Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m"),
			v1.ResourceMemory: resource.MustParse("1Gi")},
		Objects: objects{
			map[string]map[string]string{"cm": {"k": "from cm", "A": "cm A"}},
			map[string]map[string][]byte{"s": {"k": []byte("from secret"), "A": []byte("secret A")}},
		},
		VolumePath: func(name string) (string, bool) { return dir, name == "v" },
	}
}

func TestMake(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "env"),
		[]byte("# comment\n\nA='1'\nB='two\nlines' # more\nC= 'x'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := func(path, key string, optional bool) v1.EnvVarSource {
		return v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: path, Key: key, Optional: &optional}}
	}
	cmKey := func(name, key string, optional bool) v1.EnvVarSource {
		return v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: ref(name),
			Key: key, Optional: &optional}}
	}
	secretKey := func(name, key string) v1.EnvVarSource {
		return v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: ref(name), Key: key}}
	}
	for name, c := range map[string]struct {
		from []v1.EnvFromSource
		env  []v1.EnvVar
		want string
		err  string
	}{
		"nothing": {},
		"order": {
			env:  []v1.EnvVar{value("A", "$(B)"), value("B", "1"), value("C", "$(B)-$(A)-$$(B)"), value("B", "2")},
			want: "A=$(B) B=2 C=1-$(B)-$(B)",
		},
		"envFrom": {
			from: []v1.EnvFromSource{
				{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref("cm")}},
				{Prefix: "P_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: ref("s")}},
				{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref("absent"), Optional: ptr(true)}},
			},
			env:  []v1.EnvVar{value("A", "own"), value("X", "$(P_k)")},
			want: "A=own P_A=secret A P_k=from secret X=from secret k=from cm",
		},
		"later envFrom wins": {
			from: []v1.EnvFromSource{
				{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref("cm")}},
				{SecretRef: &v1.SecretEnvSource{LocalObjectReference: ref("s")}},
			},
			want: "A=secret A k=from secret",
		},
		"keys": {env: []v1.EnvVar{from("A", cmKey("cm", "k", false)),
			from("B", secretKey("s", "k"))}, want: "A=from cm B=from secret"},
		"optional": {env: []v1.EnvVar{from("A", cmKey("cm", "nope", true)), from("B", cmKey("absent", "k", true))}},
		"missing key": {env: []v1.EnvVar{from("A", cmKey("cm", "nope", false))},
			err: "couldn't find key nope in ConfigMap ns/cm"},
		"missing secret": {env: []v1.EnvVar{from("A", secretKey("absent", "k"))}, err: `secret "absent" not found`},
		"missing envFrom": {
			from: []v1.EnvFromSource{
				{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref("absent")}}}, err: `configmap "absent" not found`},
		"fields": {
			env: []v1.EnvVar{from("NAME", field("metadata.name")),
				from("LABEL", field("metadata.labels['app']")), from("NODE", field("spec.nodeName")),
				from("SA", field("spec.serviceAccountName")), from("IP", field("status.podIP")),
				from("IPS", field("status.podIPs")), from("HOST", field("status.hostIP")),
				from("UID", field("metadata.uid")), from("ALL", field("metadata.annotations"))},
			want: `ALL=a="b\"c" HOST=10.50.0.11 IP=10.0.0.1 IPS=10.0.0.1,fd00::1 LABEL=x NAME=p NODE=n1 SA=sa UID=u`,
		},
		"bad field": {env: []v1.EnvVar{from("A", field("spec.nope"))}, err: "unsupported fieldPath: spec.nope"},
		"bad subscript": {env: []v1.EnvVar{from("A", field("metadata.name['x']"))},
			err: `fieldPath "metadata.name['x']" does not support subscript`},
		"resources": {
			env: []v1.EnvVar{from("CPU", limit("limits.cpu", "0")), from("MILLI", limit("limits.cpu", "1m")),
				from("MEM", limit("limits.memory", "1Mi")), from("REQ", limit("requests.cpu", "0"))},
			want: "CPU=2 MEM=1024 MILLI=1500 REQ=0",
		},
		"bad resource": {env: []v1.EnvVar{from("A", limit("limits.foo", "0"))},
			err: "unsupported container resource : limits.foo"},
		"file": {env: []v1.EnvVar{from("A", file("env", "A", false)),
			from("B", file("env", "B", false)), from("D", file("env", "D", true))}, want: "A=1 B=two\nlines"},
		"file, no key": {env: []v1.EnvVar{from("A", file("env", "C", false))},
			err: fmt.Sprintf("environment variable key \"C\" not found in file %q", dir+"/env")},
		"file, outside":       {env: []v1.EnvVar{from("A", file("out", "A", true))}, err: "couldn't parse env file"},
		"file that is a pipe": {env: []v1.EnvVar{from("A", file("pipe", "A", false))}, err: "couldn't parse env file"},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(dir)
			in.Container.EnvFrom, in.Container.Env = c.from, c.env
			kvs, err := Build(t.Context(), in)
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Fatalf("got %v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, kv := range kvs {
				got = append(got, kv.Key+"="+string(kv.Value))
			}
			if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestServices(t *testing.T) {
	api := service("default", "kubernetes", "10.96.0.1", v1.ServicePort{Name: "https", Port: 443})
	web := service("ns", "my-web", "fd00::9", v1.ServicePort{Name: "http", Port: 80},
		v1.ServicePort{Name: "dns-udp", Port: 53, Protocol: v1.ProtocolUDP})
	headless := service("ns", "headless", v1.ClusterIPNone, v1.ServicePort{Port: 80})
	other := service("other", "db", "10.96.0.7", v1.ServicePort{Port: 1})
	shadow := service("ns", "kubernetes", "10.96.0.2", v1.ServicePort{Port: 1})
	apiVars := "KUBERNETES_PORT=tcp://10.96.0.1:443 KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443 " +
		"KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1 KUBERNETES_PORT_443_TCP_PORT=443 " +
		"KUBERNETES_PORT_443_TCP_PROTO=tcp KUBERNETES_SERVICE_HOST=10.96.0.1 " +
		"KUBERNETES_SERVICE_PORT=443 KUBERNETES_SERVICE_PORT_HTTPS=443"
	for name, c := range map[string]struct {
		services []*v1.Service
		links    bool
		want     string
	}{
		"no links": {[]*v1.Service{web, api, other}, false, apiVars},
		"links": {[]*v1.Service{headless, api, web, other}, true, apiVars + " MY_WEB_PORT=tcp://[fd00::9]:80 " +
			"MY_WEB_PORT_53_UDP=udp://[fd00::9]:53 MY_WEB_PORT_53_UDP_ADDR=fd00::9 " +
			"MY_WEB_PORT_53_UDP_PORT=53 MY_WEB_PORT_53_UDP_PROTO=udp " +
			"MY_WEB_PORT_80_TCP=tcp://[fd00::9]:80 MY_WEB_PORT_80_TCP_ADDR=fd00::9 " +
			"MY_WEB_PORT_80_TCP_PORT=80 MY_WEB_PORT_80_TCP_PROTO=tcp " +
			"MY_WEB_SERVICE_HOST=fd00::9 MY_WEB_SERVICE_PORT=80 MY_WEB_SERVICE_PORT_DNS_UDP=53 MY_WEB_SERVICE_PORT_HTTP=80"},
		"own kubernetes": {[]*v1.Service{shadow, api}, true, "KUBERNETES_PORT=tcp://10.96.0.2:1 " +
			"KUBERNETES_PORT_1_TCP=tcp://10.96.0.2:1 KUBERNETES_PORT_1_TCP_ADDR=10.96.0.2 " +
			"KUBERNETES_PORT_1_TCP_PORT=1 KUBERNETES_PORT_1_TCP_PROTO=tcp KUBERNETES_SERVICE_HOST=10.96.0.2 " +
			"KUBERNETES_SERVICE_PORT=1"},
	} {
		t.Run(name, func(t *testing.T) {
			in := input("")
			in.Services, in.Pod.Spec.EnableServiceLinks = c.services, &c.links
			kvs, err := Build(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, kv := range kvs {
				got = append(got, kv.Key+"="+string(kv.Value))
			}
			if diff := cmp.Diff(strings.Fields(c.want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// naiveExpand expands references one character at a time. The test compares Expand with it.
func naiveExpand(s string, vars map[string]string) string {
	if s == "" {
		return ""
	}
	switch {
	case strings.HasPrefix(s, "$$"):
		return "$" + naiveExpand(s[2:], vars)
	case strings.HasPrefix(s, "$(") && strings.Contains(s, ")"):
		end := strings.Index(s, ")")
		if v, ok := vars[s[2:end]]; ok {
			return v + naiveExpand(s[end+1:], vars)
		}
		return s[:end+1] + naiveExpand(s[end+1:], vars)
	case strings.HasPrefix(s, "$("):
		return "$(" + naiveExpand(s[2:], vars)
	}
	return s[:1] + naiveExpand(s[1:], vars)
}

func TestExpandModel(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "$(A)", "": "empty", "A$": "odd"}
	var env []*runtimeapi.KeyValue
	for k, v := range vars {
		env = append(env, &runtimeapi.KeyValue{Key: k, Value: []byte(v)})
	}
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(
			rapid.SampledFrom([]string{"$", "(", ")", "A", "B", "$(A)", "$$", "x", "é"}), 0, 12).Draw(t, "parts"), "")
		if got, want := Expand(s, env), naiveExpand(s, vars); got != want {
			t.Fatalf("%q: %q, want %q", s, got, want)
		}
	})
}

func FuzzFileVariable(f *testing.F) {
	f.Add("A='1'\n", "A")
	f.Add("A='1\n2'#\n", "B")
	f.Add("A = 'x'", "A")
	f.Fuzz(func(t *testing.T, content, key string) {
		v, err := fileVariable(strings.NewReader(content), key)
		if err == nil && strings.Contains(v, "'") {
			t.Errorf("%q: a quote in %q", content, v)
		}
	})
}

func TestFileVariableErrors(t *testing.T) {
	for content, want := range map[string]string{
		"A":              "invalid environment variable format at line 1: missing '='",
		"\n='1'":         "invalid environment variable format at line 2: empty variable name",
		"A ='1'":         "invalid environment variable format at line 1: whitespace before '=' is not allowed",
		"A=1":            "invalid environment variable format at line 1: value must be enclosed in single quotes",
		"B='1'\nA='1' x": "invalid environment variable format at line 2: unexpected content after closing quote",
		"B='1'\nA='1\n2": "invalid environment variable format starting at line 2: unclosed single quote",
	} {
		if _, err := fileVariable(strings.NewReader(content), "A"); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
}
