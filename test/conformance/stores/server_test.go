// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
)

const (
	// token is the token of a user in the group system:masters.
	token = "administrator"
	// readyTimeout is how long a program may take until it is ready.
	readyTimeout = 2 * time.Minute
	// poll is the interval of checks.
	poll = 100 * time.Millisecond
)

// encryption makes servers encrypt three kinds, each with another provider. The provider identity reads
// the serialized objects of TestFixtures, which are not encrypted.
const encryption = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aescbc: {keys: [{name: one, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
  - identity: {}
- resources: [configmaps]
  providers:
  - secretbox: {keys: [{name: two, secret: ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=}]}
  - identity: {}
- resources: [foos.cr.bar.com]
  providers:
  - aesgcm: {keys: [{name: three, secret: MDEyMzQ1Njc4OWFiY2RlZmZlZGNiYTk4NzY1NDMyMTA=}]}
  - identity: {}
`

// store is an etcd, and the files that API servers need to use it one after the other.
type store struct {
	endpoint string
	etcd     *clientv3.Client
	dir      string
	port     int // of the server that uses the store
	starts   int // the number of servers that have been started
}

// newStore starts an empty etcd.
func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{endpoint: fmt.Sprintf("http://127.0.0.1:%d", freePort(t)), dir: t.TempDir(), port: freePort(t)}
	start(t, fmt.Sprintf("etcd-%d", s.port), filepath.Join(root, "bin", "tools", "etcd"),
		"--data-dir", filepath.Join(s.dir, "etcd"), "--listen-client-urls", s.endpoint, "--advertise-client-urls", s.endpoint,
		"--listen-peer-urls", "http://127.0.0.1:0", "--unsafe-no-fsync")
	var err error
	s.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{s.endpoint}, DialTimeout: readyTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.etcd.Close() })
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"sa.key": string(pem), "encryption.yaml": encryption, "tokens.csv": token + ",admin,1,system:masters\n",
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// server is a running API server.
type server struct {
	*process
	name    string
	release release // the release of Kubernetes whose API the program has
	// emulates is set if the server emulates an earlier release.
	emulates bool
	served   map[schema.GroupVersionResource]resource // the result of resources at the last snapshot
	config   *rest.Config
	client   *kubernetes.Clientset
	dynamic  *dynamic.DynamicClient
}

// kubernetes starts the kube-apiserver of a release.
func (s *store) kubernetes(t *testing.T, r release, args ...string) *server {
	t.Helper()
	return s.serve(t, r, "kube-apiserver-"+string(r), r.program("kube-apiserver"), args...)
}

// keelson starts Keelson's API server.
func (s *store) keelson(t *testing.T, args ...string) *server {
	t.Helper()
	return s.serve(t, v137, "Keelson", filepath.Join(root, "bin", "apiserver"), args...)
}

// serve starts an API server and waits until it is ready. All servers get the same arguments. The
// address that they advertise is one for documentation: no program connects to it.
func (s *store) serve(t *testing.T, r release, name, program string, args ...string) *server {
	t.Helper()
	s.starts++
	key := filepath.Join(s.dir, "sa.key")
	all := append([]string{
		"--etcd-servers=" + s.endpoint, "--etcd-prefix=/registry",
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(s.port), "--cert-dir=" + filepath.Join(s.dir, "certs"),
		"--advertise-address=192.0.2.1", "--service-cluster-ip-range=10.96.0.0/25",
		"--token-auth-file=" + filepath.Join(s.dir, "tokens.csv"), "--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://stores.example.com", "--service-account-key-file=" + key,
		"--service-account-signing-key-file=" + key,
		"--encryption-provider-config=" + filepath.Join(s.dir, "encryption.yaml"),
	}, args...)
	v := &server{process: start(t, fmt.Sprintf("%d-%s", s.starts, name), program, all...), name: name, release: r}
	v.emulates = slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--emulated-version=") })
	v.config = &rest.Config{
		Host: "https://127.0.0.1:" + strconv.Itoa(s.port), BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, WarningHandler: rest.NoWarnings{},
	}
	v.client = kubernetes.NewForConfigOrDie(v.config)
	v.dynamic = dynamic.NewForConfigOrDie(v.config)
	err := wait.PollUntilContextTimeout(t.Context(), poll, readyTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-v.ended:
			return false, fmt.Errorf("the server has ended: %w", v.err)
		default:
		}
		status := 0
		v.client.RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status)
		return status == http.StatusOK, nil
	})
	if err != nil {
		t.Fatalf("wait for %s (log: %s): %v", name, v.log, err)
	}
	return v
}

// end stops the server, so that another one can use the store.
func (v *server) end(t *testing.T) {
	t.Helper()
	if err := v.stop(); err != nil {
		t.Errorf("%s: %v", v.name, err)
	}
}
