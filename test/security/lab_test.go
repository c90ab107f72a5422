// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/network/attach"
	"keelson.dev/keelson/test/unshare"
)

// TestMain runs as the CNI plugin if a network runtime has executed the test binary as a plugin.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		attach.Main(clock.Real())
		return
	}
	unshare.Run(m, unshare.Mount)
}

// lab is an API server with the settings of "ctl cluster", and the server's log.
type lab struct {
	*testserver.Server
	log *buffer
}

// buffer collects the server's log. It can be read while the server writes to it.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// harden applies the settings of "ctl cluster" to an API server's configuration.
func harden(c *config.Config) {
	c.AnonymousAuth, c.Profiling, c.ExtendTokenExpiration = false, false, false
	c.EnableAdmission = []string{"NodeRestriction", "NodeOwnership", "DenyServiceExternalIPs",
		"EndpointOwnership", "IngressHosts"}
	c.Transport.Deny = []string{"special"}
}

func newLab(t *testing.T, change func(*config.Config)) *lab {
	t.Helper()
	l := &lab{log: &buffer{}}
	l.Server = testserver.Start(t, testserver.Options{Log: l.log, Configure: func(c *config.Config) {
		harden(c)
		if change != nil {
			change(c)
		}
	}})
	return l
}

// user returns a client of a user with the given rights in a namespace, or in all namespaces if
// namespace is empty.
func (l *lab) user(t *testing.T, name, namespace string, rules ...rbacv1.PolicyRule) kubernetes.Interface {
	t.Helper()
	subjects := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}}
	meta := metav1.ObjectMeta{Name: "of-" + name, Namespace: namespace}
	rbac := l.Client.RbacV1()
	var err error
	if namespace == "" {
		_, err = rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
			metav1.CreateOptions{})
		check(t, err)
		_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}}, metav1.CreateOptions{})
	} else {
		_, err = rbac.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules},
			metav1.CreateOptions{})
		check(t, err)
		_, err = rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}}, metav1.CreateOptions{})
	}
	check(t, err)
	return l.as(t, name)
}

// bind grants one of the default roles to a user, and returns a client of the user.
func (l *lab) bind(t *testing.T, user, namespace, role string) kubernetes.Interface {
	t.Helper()
	_, err := l.Client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role[len(role)-4:]},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}, metav1.CreateOptions{})
	check(t, err)
	return l.as(t, user)
}

// owner makes a user the administrator of a namespace. It binds the individual roles that the role
// admin aggregates, because the controller that aggregates roles does not run here.
func (l *lab) owner(t *testing.T, user, namespace string) kubernetes.Interface {
	t.Helper()
	l.bind(t, user, namespace, "system:aggregate-to-admin")
	l.bind(t, user, namespace, "system:aggregate-to-edit")
	return l.bind(t, user, namespace, "system:aggregate-to-view")
}

func (l *lab) as(t *testing.T, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(l.UserConfig(t, user, groups...))
	check(t, err)
	return c
}

func (l *lab) namespace(t *testing.T, name string) {
	t.Helper()
	_, err := l.Client.CoreV1().Namespaces().Create(t.Context(),
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	check(t, err)
}

// node creates a Node whose kubelet listens at the given address.
func (l *lab) node(t *testing.T, name, address string) {
	t.Helper()
	n, err := l.Client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	check(t, err)
	host, port, err := net.SplitHostPort(address)
	check(t, err)
	number, err := strconv.Atoi(port)
	check(t, err)
	kind := v1.NodeHostName
	if net.ParseIP(host) != nil {
		kind = v1.NodeInternalIP
	}
	n.Status.Addresses = []v1.NodeAddress{{Type: kind, Address: host}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	_, err = l.Client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	check(t, err)
}

// pod creates a running pod on a node, with the given IP addresses.
func (l *lab) pod(t *testing.T, namespace, name, node string, ips ...string) {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: v1.PodSpec{
		NodeName: node, Containers: []v1.Container{{Name: "c", Image: "i"}}}}
	account(t, l.Client, namespace)
	pod, err := l.Client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	check(t, err)
	pod.Status.Phase = v1.PodRunning
	for _, ip := range ips {
		pod.Status.PodIP = ips[0]
		pod.Status.PodIPs = append(pod.Status.PodIPs, v1.PodIP{IP: ip})
	}
	_, err = l.Client.CoreV1().Pods(namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	check(t, err)
}

// account creates the default service account of a namespace.
func account(t *testing.T, c kubernetes.Interface, namespace string) {
	t.Helper()
	_, err := c.CoreV1().ServiceAccounts(namespace).Create(t.Context(),
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until ok returns true. If that takes too long, the test fails with a message
// that contains what.
func eventually(t *testing.T, what string, ok func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) { return ok(ctx), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// allowed waits until do succeeds, that is, until the user has the rights that the attack needs.
// This takes a moment, because the server reads roles and bindings from watches.
func allowed(t *testing.T, do func(context.Context) error) {
	t.Helper()
	eventually(t, "the right that the attacker has",
		func(ctx context.Context) bool { return !apierrors.IsForbidden(do(ctx)) })
}

// victim is a server that an attack must not reach. It records connections and requests.
type victim struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

func newVictim(t *testing.T) *victim {
	v := &victim{}
	v.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		v.note(r.Method + " " + r.URL.Path)
	}))
	v.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			v.note("connection")
		}
	}
	v.StartTLS()
	t.Cleanup(v.Close)
	return v
}

func (v *victim) note(what string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = append(v.seen, what)
}

func (v *victim) unharmed(t *testing.T) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.seen) > 0 {
		t.Errorf("the attack reached the server: %q", v.seen)
	}
}

// raw sends a request exactly as given, and returns the connection and the response.
func raw(t *testing.T, c *rest.Config, request string) (*tls.Conn, *http.Response) {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(c)
	check(t, err)
	tlsConfig.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(c.Host, "https://"), tlsConfig)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, request)
	check(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	check(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return conn, resp
}

// get sends a GET request without following redirects, and returns the status, headers and body of
// the response.
func get(t *testing.T, c *rest.Config, path string) (int, http.Header, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(c)
	check(t, err)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+path, nil)
	check(t, err)
	resp, err := client.Do(req)
	check(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check(t, err)
	return resp.StatusCode, resp.Header, string(body)
}
