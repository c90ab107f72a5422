// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// serveEtcd runs an etcd on loopback until the test ends or stop is called. It returns the URL of
// the etcd and a client.
func serveEtcd(t *testing.T) (stop func(), at string, client *clientv3.Client) {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.UnsafeNoFsync, cfg.LogLevel = t.TempDir(), true, "fatal"
	local := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg.ListenClientUrls, cfg.ListenPeerUrls = []url.URL{local}, []url.URL{local}
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(server.Close)
	t.Cleanup(stop)
	<-server.Server.ReadyNotify()
	at = "http://" + server.Clients[0].Addr().String()
	client, err = clientv3.New(clientv3.Config{Endpoints: []string{at}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return stop, at, client
}

// kept returns the keys in an etcd that begin with prefix.
func kept(t *testing.T, client *clientv3.Client, prefix string) (keys []string) {
	t.Helper()
	resp, err := client.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// TestDatabasesOfResources checks that an etcd that is configured for a resource has all objects of
// the resource, and that the default etcd has none of them. The objects can be listed, watched and
// counted, and are found after a restart. Health checks include both etcds.
func TestDatabasesOfResources(t *testing.T) {
	t.Parallel() // slow: waits for a database that does not answer
	_, mainAt, first := serveEtcd(t)
	stopOther, at, second := serveEtcd(t)
	sealing := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(sealing, []byte(`kind: EncryptionConfiguration
apiVersion: apiserver.config.k8s.io/v1
resources:
- resources: [configmaps]
  providers: [secretbox: {keys: [{name: a, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=}]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := ""
	start := func() *testserver.Server {
		s := testserver.Start(t, testserver.Options{Dir: dir, Etcd: embedded.Start, Configure: func(c *config.Config) {
			c.EtcdServers, c.EncryptionConfig, c.Etcd.HealthTimeout = []string{mainAt}, sealing, time.Second
			c.Etcd.ServersOverrides = []string{
				"/events#" + at, "/configmaps#" + at, "apps/*#" + at, "apps/deployments#" + mainAt,
				"apiextensions.k8s.io/customresourcedefinitions#" + at, "events.k8s.io/events#" + mainAt, "/services#" + at,
			}
		}})
		dir = s.Dir
		return s
	}
	s := start()
	ctx := t.Context()
	maps := s.Client.CoreV1().ConfigMaps("default")
	watch, err := maps.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		if e := <-watch.ResultChan(); e.Object.(*corev1.ConfigMap).Name == "a" {
			break
		}
	}
	if _, err := s.Client.CoreV1().Events("default").Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	selector := &metav1.LabelSelector{MatchLabels: template.Labels}
	if _, err := s.Client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.AppsV1().DaemonSets("default").Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	for prefix, want := range map[string][2][]string{
		"/registry/events/":             {nil, {"/registry/events/default/e"}},
		"/registry/configmaps/default/": {nil, {"/registry/configmaps/default/a"}},
		"/registry/deployments/":        {{"/registry/deployments/default/d"}, nil},
		"/registry/daemonsets/":         {nil, {"/registry/daemonsets/default/d"}},
		"/registry/services/specs/":     {nil, {"/registry/services/specs/default/kubernetes"}},
		"/registry/ranges/":             {nil, {"/registry/ranges/servicenodeports"}},
		"/registry/apiregistration.k8s.io/apiservices/v1.apps": {
			{"/registry/apiregistration.k8s.io/apiservices/v1.apps"}, nil},
	} {
		if got := [2][]string{kept(t, first, prefix), kept(t, second, prefix)}; !slices.Equal(got[0],
			want[0]) || !slices.Equal(got[1], want[1]) {
			t.Errorf("%s: %v, want %v", prefix, got, want)
		}
	}
	raw, err := second.Get(ctx, "/registry/configmaps/default/a")
	if err != nil || !strings.HasPrefix(string(raw.Kvs[0].Value), "k8s:enc:secretbox:v1:a:") {
		t.Errorf("stored %q, %v", raw.Kvs[0].Value, err)
	}
	if _, text := get(t, s.Config, "/metrics"); !strings.Contains(text,
		`apiserver_resource_objects{group="apps",resource="daemonsets"} 1`) ||
		!strings.Contains(text, `apiserver_resource_objects{group="",resource="events"} 1`) {
		t.Error("objects are not counted")
	}
	statuses, err := s.Client.CoreV1().ComponentStatuses().List(ctx, metav1.ListOptions{})
	if err != nil || len(statuses.Items) != 2+8 {
		t.Errorf("%d components, %v", len(statuses.Items), err)
	}
	const checks = "[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]etcd-readiness ok\n[+]etcd-override-0 " +
		"excluded with etcd: ok\n[+]etcd-override-readiness-0 ok\n" +
		"[+]etcd-override-1 excluded with etcd: ok\n[+]etcd-override-readiness-1 ok\n[+]informer-sync ok\n"
	if status, text := get(t, s.Config, "/readyz?verbose&exclude=etcd"); status != 200 ||
		!strings.HasPrefix(text, checks) {
		t.Errorf("%d %s", status, text)
	}

	s.Stop(t)
	s = start()
	events := s.Client.EventsV1().Events("default")
	maps = s.Client.CoreV1().ConfigMaps("default")
	if list, err := events.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("events after a restart: %v, %v", list, err)
	}
	if _, err := maps.Get(ctx, "a", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	stopOther()
	if status, text := get(t, s.Config, "/livez?verbose"); status != 500 ||
		!strings.Contains(text, "[+]etcd ok\n[-]etcd-override-0 failed: reason withheld\n[+]etcd-override-1 ok\n") {
		t.Errorf("without the second etcd: %d %s", status, text)
	}
	if _, err := s.Client.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("what is in the first etcd: %v", err)
	}
}

// TestPrefixOfKeys checks that a prefix may be written with or without a leading slash.
func TestPrefixOfKeys(t *testing.T) {
	_, at, client := serveEtcd(t)
	for prefix, want := range map[string]string{
		"a/registry": "/a/registry/configmaps/default/c", "/b/": "/b/configmaps/default/c", "": "/configmaps/default/c",
	} {
		t.Run(prefix, func(t *testing.T) {
			s := testserver.Start(t, testserver.Options{Etcd: embedded.Start, Configure: func(c *config.Config) {
				c.EtcdServers, c.EtcdPrefix = []string{at}, prefix
			}})
			if _, err := s.Client.CoreV1().ConfigMaps("default").Create(t.Context(),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if keys := kept(t, client, want); !slices.Equal(keys, []string{want}) {
				t.Errorf("no %s among %v", want, kept(t, client, ""))
			}
		})
	}
}
