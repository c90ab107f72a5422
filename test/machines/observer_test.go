// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"keelson.dev/keelson/pkg/epoch"
	"keelson.dev/keelson/test/machines/lab"
)

// Environment variables that make this program do something else than testing, as writerConfig does.
const (
	// informerConfig has the kubeconfig of an informer.
	informerConfig = "KEELSON_INFORMER"
	// observerServers has the addresses of control planes, separated by commas.
	observerServers = "KEELSON_OBSERVER"
)

const (
	observerProgram = "/root/observer"
	informerFile    = "/root/informer"
)

// inform keeps an informer of ConfigMaps, as a client with the defaults of client-go, and writes what it has
// into informerFile: NAME=TEXT of each ConfigMap with a text.
func inform(kubeconfig string) error {
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(metav1.NamespaceDefault))
	maps := factory.Core().V1().ConfigMaps().Lister()
	factory.Start(context.Background().Done())
	for range time.Tick(100 * time.Millisecond) {
		list, err := maps.List(labels.Everything())
		if err != nil {
			return err
		}
		var b strings.Builder
		for _, m := range list {
			if text, ok := m.Data["text"]; ok {
				fmt.Fprintf(&b, "%s=%s\n", m.Name, text)
			}
		}
		next := filepath.Join(filepath.Dir(informerFile), "informer.new")
		if err := errors.Join(os.WriteFile(next, []byte(b.String()), 0o600), os.Rename(next, informerFile)); err != nil {
			return err
		}
	}
	return nil
}

// observed is what a control plane says about its store.
type observed struct {
	Epoch   string // of a ready API server; otherwise its status
	Cluster uint64 // the ID of etcd's cluster
	Voters  int
	Members int
}

// observe prints what each control plane says, with the credentials of a control plane.
func observe(servers string) error {
	rc, err := clientcmd.BuildConfigFromFlags("", "/etc/kubernetes/admin.conf")
	if err != nil {
		return err
	}
	out := map[string]observed{}
	for host := range strings.SplitSeq(servers, ",") {
		o, err := observeOne(rc, host)
		if err != nil {
			o.Epoch = err.Error()
		}
		out[host] = o
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func observeOne(rc *rest.Config, host string) (o observed, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	const pki = "/etc/kubernetes/pki/"
	client, err := rest.HTTPClientFor(rc)
	if err != nil {
		return o, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+":6443/readyz", http.NoBody)
	if err != nil {
		return o, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return o, err
	}
	defer resp.Body.Close()
	o.Epoch = resp.Header.Get(epoch.Header)
	if resp.StatusCode >= http.StatusInternalServerError {
		o.Epoch = resp.Status
	}
	config, err := transport.TLSInfo{TrustedCAFile: pki + "etcd/ca.crt", CertFile: pki + "apiserver-etcd-client.crt",
		KeyFile: pki + "apiserver-etcd-client.key"}.ClientConfig()
	if err != nil {
		return o, err
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + host + ":2379"}, TLS: config})
	if err != nil {
		return o, err
	}
	defer etcd.Close()
	list, err := etcd.MemberList(ctx)
	if err != nil {
		return o, err
	}
	o.Cluster, o.Members = list.Header.ClusterId, len(list.Members)
	for _, m := range list.Members {
		if !m.IsLearner {
			o.Voters++
		}
	}
	return o, nil
}

// observed asks control planes from one of them.
func (c *cell) observed(from *lab.Machine, machines ...*lab.Machine) map[string]observed {
	c.Helper()
	var hosts []string
	for _, m := range machines {
		hosts = append(hosts, m.Address().String())
	}
	text := c.run(from, observerServers+"="+strings.Join(hosts, ",")+" "+observerProgram)
	out := map[string]observed{}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		c.Fatalf("%v\n%s", err, text)
	}
	return out
}
