// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/balancer"
	"keelson.dev/keelson/pkg/controllers/certificates"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/epoch"
	"keelson.dev/keelson/pkg/pki"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestReadServers(t *testing.T) {
	for content, ok := range map[string]bool{
		`["192.0.2.1:6443","[2001:db8::1]:6443"]`: true,
		`[]`:                   false,
		`null`:                 false,
		`["example.com:6443"]`: false,
		`["192.0.2.1"]`:        false,
		`[""]`:                 false,
		`{"servers":[]}`:       false,
		`["192.0.2.1:6443"`:    false,
		``:                     false,
	} {
		file := filepath.Join(t.TempDir(), "servers")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if servers, err := ReadServers(file); (err == nil) != ok {
			t.Errorf("%s: %v, %v", content, servers, err)
		}
	}
	if _, err := ReadServers(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error without the file")
	}
}

// TestFollow checks that the servers of the balancer and their file follow the API servers that run.
// The balancer gets no connections, because the addresses of the servers lead nowhere.
func TestFollow(t *testing.T) {
	first := testserver.Start(t, testserver.Options{})
	c := &Config{Servers: filepath.Join(t.TempDir(), "servers"), Former: filepath.Join(t.TempDir(), "former"),
		Clock: clock.Real(), Log: discard()}
	b := balancer.New(c.Clock, c.Log)
	b.SetServers([]string{"192.0.2.9:6443"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	k := newKnown(*c, b)
	go func() { defer close(ended); c.follow(ctx, first.Client, k) }()
	defer func() { cancel(); <-ended }()
	// The servers of a test have different ports, and each server publishes its own port for all.
	addresses := func(servers []string) (out []string) {
		for _, s := range servers {
			host, _, _ := net.SplitHostPort(s)
			out = append(out, host)
		}
		return out
	}
	serves := func(want ...string) {
		t.Helper()
		controllertest.Eventually(t, "the servers "+strings.Join(want, ", "), func(context.Context) (any, bool) {
			stored, _ := ReadServers(c.Servers)
			return stored, slices.Equal(addresses(stored), want) && slices.Equal(b.Servers(), stored)
		})
	}
	serves("192.0.2.1")
	second := testserver.Start(t, testserver.Options{Dir: first.Dir, KV: first.KV, Configure: func(c *config.Config) {
		c.AdvertiseAddress = "192.0.2.2"
	}})
	serves("192.0.2.1", "192.0.2.2")
	second.Stop(t)
	serves("192.0.2.1")
	if got := addresses(k.formerServers()); !slices.Contains(got, "192.0.2.2") {
		t.Errorf("former servers %v", got)
	}
	if err := RemoveServers(ctx, first.Client, []string{"192.0.2.2"}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the removal", func(context.Context) (any, bool) {
		got := addresses(k.formerServers())
		return got, !slices.Contains(got, "192.0.2.2")
	})
	k.use(nil)
	serves("192.0.2.1")
}

func TestServersIn(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](6443)}, {Name: ptr.To("without a number")}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.2"}}, {Addresses: []string{"2001:db8::1"}},
			{Addresses: []string{"192.0.2.1"}}, {Addresses: []string{"192.0.2.2"}}},
	}
	want := []string{"192.0.2.1:6443", "192.0.2.2:6443", "[2001:db8::1]:6443"}
	if got := ServersIn(slice); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := ServersIn(&discoveryv1.EndpointSlice{}); len(got) > 0 {
		t.Errorf("%v in an empty slice", got)
	}
}

// server is an API server that answers with a status code, and with an epoch if it is not 0.
type server struct {
	*httptest.Server
	code  atomic.Int32
	epoch atomic.Int64
	minor atomic.Int32 // of its version of Kubernetes
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			fmt.Fprintf(w, `{"gitVersion": "v1.%d.0"}`, s.minor.Load())
			return
		}
		if number := s.epoch.Load(); number != 0 {
			w.Header().Set(epoch.Header, epoch.Format(number))
		}
		w.WriteHeader(int(s.code.Load()))
	}))
	t.Cleanup(s.Close)
	return s
}

// TestChecks checks that a server that is not ready gets no connections after two failed checks,
// until it is ready again.
func TestChecks(t *testing.T) {
	one, two := newServer(t), newServer(t)
	b := balancer.New(clock.Real(), discard())
	b.SetServers([]string{one.Listener.Addr().String(), two.Listener.Addr().String()})
	front := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, front) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	checks, err := newChecks(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one.Certificate().Raw}),
	}}, newEpochs(filepath.Join(t.TempDir(), "epoch"), b, discard()), newAges(nil, b), clock.Real(), discard())
	if err != nil {
		t.Fatal(err)
	}
	defer checks.client.CloseIdleConnections()
	// ready returns how many of four new connections reach a server that is ready.
	ready := func() int {
		t.Helper()
		client := one.Client()
		client.Transport.(*http.Transport).DisableKeepAlives = true
		n := 0
		for range 4 {
			resp, err := client.Get("https://" + front.Addr().String() + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				n++
			}
		}
		return n
	}
	const (
		ok        = http.StatusOK
		forbidden = http.StatusForbidden // the server works, but the kubelet has no rights there
		broken    = http.StatusInternalServerError
	)
	for i, step := range []struct {
		one, two int32
		rounds   int
		want     int
	}{
		{ok, ok, 1, 4},
		{broken, ok, 1, 2},
		{broken, ok, 1, 4},
		{broken, ok, 1, 4},
		{ok, ok, 1, 4},
		{ok, broken, 2, 4},
		{broken, broken, 2, 0},
		{broken, ok, 1, 4},
		{forbidden, ok, 1, 2},
	} {
		one.code.Store(step.one)
		two.code.Store(step.two)
		for range step.rounds {
			checks.round(t.Context())
		}
		if got := ready(); got != step.want {
			t.Errorf("step %d: %d of 4 connections reach a server that is ready, want %d", i, got, step.want)
		}
	}
}

// TestRun checks that the API can be reached through the agent before the kubelet has credentials,
// and that afterwards the agent obtains the proxy's certificate.
func TestRun(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	authority := controller.KeyPair{}
	for file, into := range map[string]*[]byte{"ca.crt": &authority.Cert, "ca.key": &authority.Key} {
		data, err := os.ReadFile(filepath.Join(s.Dir, file))
		if err != nil {
			t.Fatal(err)
		}
		*into = data
	}
	controllertest.Run(t, s, controller.Options{SigningCert: authority.Cert, SigningKey: authority.Key,
		SigningDuration: time.Hour, ApproveProxies: true}, certificates.NewApproving, certificates.NewSigning)
	dir := t.TempDir()
	c := Config{
		Node: "n1", Listener: listen(t),
		Servers: filepath.Join(dir, "servers"), Former: filepath.Join(dir, "former"), Version: "v1.37.2",
		Kubeconfig: filepath.Join(dir, "kubelet.conf"),
		ProxyPair:  filepath.Join(dir, "proxy", "client-current.pem"), Clock: clock.Real(), Log: discard(),
	}
	if err := WriteServers(c.Servers, []string{strings.TrimPrefix(s.URL, "https://")}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	through := rest.CopyConfig(s.Config)
	through.Host = "https://" + c.Listener.Addr().String()
	client, err := kubernetes.NewForConfig(through)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	writeKubeconfig(t, c.Kubeconfig, through.Host, s.UserConfig(t, "system:node:n1", "system:nodes"))
	controllertest.Eventually(t, "the proxy's certificate", func(context.Context) (any, bool) {
		cert, err := pki.ReadCertificate(c.ProxyPair)
		return err, err == nil && cert.Subject.CommonName == "system:kube-proxy:n1" &&
			slices.Equal(cert.Subject.Organization, []string{"keelson:proxies"})
	})
}

func writeKubeconfig(t *testing.T, file, server string, rc *rest.Config) {
	t.Helper()
	out := clientcmdapi.NewConfig()
	out.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: rc.CAData}
	out.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: rc.CertData, ClientKeyData: rc.KeyData}
	out.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	out.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*out, file); err != nil {
		t.Fatal(err)
	}
}

// TestRunWithoutServers checks that an agent that knows no API server says so at its start.
func TestRunWithoutServers(t *testing.T) {
	err := Run(t.Context(), Config{Servers: filepath.Join(t.TempDir(), "none"), Listener: listen(t), Clock: clock.Real(),
		Log: discard()})
	if err == nil {
		t.Error("no error")
	}
}
