// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/apiserver/leaktest"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// serverAddress is the only address of API servers in the tests' clusters.
const serverAddress = "192.0.2.1"

// cell is a cluster with the node m2, which became ready or not ready at the time of the clock.
type cell struct {
	*testing.T
	*testserver.Server
	clock *testclock.FakeClock
	out   bytes.Buffer
}

func newCell(t *testing.T, ready v1.ConditionStatus, address string) *cell {
	t.Helper()
	c := &cell{T: t, Server: testserver.Start(t, testserver.Options{}), clock: testclock.NewFakeClock(time.Now())}
	_, err := c.Client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Client.CoreV1().Nodes().Create(t.Context(), &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "m2"},
		Status: v1.NodeStatus{
			Addresses: []v1.NodeAddress{{Type: v1.NodeHostName, Address: "m2"}, {Type: v1.NodeInternalIP, Address: address}},
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: ready,
				LastTransitionTime: metav1.NewTime(c.clock.Now())}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pod creates a pod on the node m2, which ends as soon as it is evicted. owner is the kind of its
// controller, or empty.
func (c *cell) pod(name, owner string, volumes ...v1.Volume) {
	c.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
		NodeName: "m2", TerminationGracePeriodSeconds: new(int64), Volumes: volumes,
		Containers: []v1.Container{{Name: "c", Image: "i"}},
	}}
	if owner != "" {
		controller := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: "o", UID: "1",
			Controller: &controller}}
	}
	if _, err := c.Client.CoreV1().Pods("default").Create(c.Context(), p, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// request creates a certificate request for a user.
func (c *cell) request(name, signer, user string) {
	c.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: user, Organization: []string{"a"}}}, key)
	if err != nil {
		c.Fatal(err)
	}
	_, err = c.Client.CertificatesV1().CertificateSigningRequests().Create(c.Context(),
		&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
				SignerName: signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			}}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
}

// remove calls Remove. change may be nil.
func (c *cell) remove(change func(*Options)) error {
	o := Options{Client: c.Client, Clock: c.clock, Out: &c.out, ErrOut: &c.out}
	if change != nil {
		change(&o)
	}
	return Remove(c.Context(), "m2", o)
}

// check checks whether the node exists, and the names of the pods and certificate requests.
func (c *cell) check(node bool, pods, requests []string) {
	c.Helper()
	n, err := c.Client.CoreV1().Nodes().Get(c.Context(), "m2", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) || (err == nil) != node {
		c.Errorf("node: %v, want it to exist: %t", err, node)
	}
	if node && err == nil && !n.Spec.Unschedulable {
		c.Error("the node is not cordoned")
	}
	podList, err := c.Client.CoreV1().Pods("default").List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	var have []string
	for _, p := range podList.Items {
		have = append(have, p.Name)
	}
	if !slices.Equal(have, pods) {
		c.Errorf("pods %q, want %q", have, pods)
	}
	list, err := c.Client.CertificatesV1().CertificateSigningRequests().List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	have = nil
	for _, r := range list.Items {
		have = append(have, r.Name)
	}
	if !slices.Equal(have, requests) {
		c.Errorf("requests %q, want %q", have, requests)
	}
}

// TestRemove removes a node with a pod and certificate requests, and keeps what belongs to others.
func TestRemove(t *testing.T) {
	c := newCell(t, v1.ConditionTrue, "192.0.2.2")
	c.pod("web", "ReplicaSet")
	for name, r := range map[string][2]string{
		"kubelet": {"kubernetes.io/kube-apiserver-client-kubelet", "system:node:m2"},
		"serving": {"kubernetes.io/kubelet-serving", "system:node:m2"},
		"proxy":   {"kubernetes.io/kube-apiserver-client", "system:kube-proxy:m2"},
		"other":   {"kubernetes.io/kube-apiserver-client-kubelet", "system:node:m21"},
		"foreign": {"example.com/signer", "system:node:m2"},
		"user":    {"kubernetes.io/kube-apiserver-client", "jane"},
	} {
		c.request(name, r[0], r[1])
	}
	if err := c.remove(nil); err != nil {
		t.Fatal(err, c.out.String())
	}
	c.check(false, nil, []string{"foreign", "other", "user"})
	for _, want := range []string{"node/m2 cordoned\n", "evicting pod default/web\n", "io/proxy deleted\n",
		"node/m2 deleted\n", `Run "ctl reset"`} {
		if !strings.Contains(c.out.String(), want) {
			t.Errorf("no %q in\n%s", want, c.out.String())
		}
	}
	if err := c.remove(nil); !apierrors.IsNotFound(err) {
		t.Errorf("remove again: %v", err)
	}
}

// TestRemoveKeepsPods checks that a node with pods that would be lost is not removed, unless the
// operator asks for it.
func TestRemoveKeepsPods(t *testing.T) {
	empty := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
	for name, tc := range map[string]struct {
		owner   string
		volumes []v1.Volume
		change  func(*Options)
		left    []string // pods after a second, successful call with change
	}{
		"no controller":     {"", nil, func(o *Options) { o.Force = true }, []string{"p"}},
		"emptyDir, forced":  {"ReplicaSet", []v1.Volume{empty}, func(o *Options) { o.Force = true }, []string{"p"}},
		"emptyDir, evicted": {"ReplicaSet", []v1.Volume{empty}, func(o *Options) { o.DeleteEmptyDirData = true }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCell(t, v1.ConditionTrue, "192.0.2.2")
			c.pod("p", tc.owner, tc.volumes...)
			c.request("kubelet", "kubernetes.io/kube-apiserver-client-kubelet", "system:node:m2")
			if err := c.remove(nil); !errors.Is(err, errDrain) {
				t.Errorf("error %v, want %v", err, errDrain)
			}
			c.check(true, []string{"p"}, []string{"kubelet"})
			if err := c.remove(tc.change); err != nil {
				t.Error(err)
			}
			c.check(false, tc.left, nil)
		})
	}
}

// TestRemoveFailedNode checks that the pods of a node are given up if it has not been ready for a long
// time, and not before.
func TestRemoveFailedNode(t *testing.T) {
	for name, tc := range map[string]struct {
		ready  v1.ConditionStatus
		after  time.Duration
		giveUp bool
	}{
		"ready for long":           {v1.ConditionTrue, time.Hour, false},
		"not ready for long":       {v1.ConditionFalse, notReadyLimit, true},
		"unreachable for long":     {v1.ConditionUnknown, time.Hour, true},
		"unreachable a short time": {v1.ConditionUnknown, notReadyLimit - 2*time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCell(t, tc.ready, "192.0.2.2")
			c.pod("p", "ReplicaSet")
			c.clock.Step(tc.after)
			if err := c.remove(nil); err != nil {
				t.Fatal(err)
			}
			var left []string
			if tc.giveUp {
				left = []string{"p"}
			}
			c.check(false, left, nil)
			if said := strings.Contains(c.out.String(), "not evicted, because it has not been ready since"); said != tc.giveUp {
				t.Errorf("says why: %t in\n%s", said, c.out.String())
			}
		})
	}
}

// TestRemoveControlPlane checks that the machine of the only API server is not removed by mistake.
func TestRemoveControlPlane(t *testing.T) {
	c := newCell(t, v1.ConditionTrue, serverAddress)
	if err := c.remove(nil); !errors.Is(err, errOnlyControlPlane) {
		t.Errorf("error %v, want %v", err, errOnlyControlPlane)
	}
	n, err := c.Client.CoreV1().Nodes().Get(t.Context(), "m2", metav1.GetOptions{})
	if err != nil || n.Spec.Unschedulable {
		t.Errorf("node %v, %v: want it unchanged", n, err)
	}
	if err := c.remove(func(o *Options) { o.Force = true }); err != nil {
		t.Error(err)
	}
	c.check(false, nil, nil)
}

func TestHasAddress(t *testing.T) {
	node := &v1.Node{Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Address: "m2"}, {Address: "192.0.2.1"},
		{Address: "2001:DB8:0::1"}}}}
	for server, want := range map[string]bool{
		"192.0.2.1:6443": true, "192.0.2.9:6443": false, "[2001:db8::1]:6443": true, "192.0.2.1": false,
	} {
		if got := hasAddress(node, server); got != want {
			t.Errorf("%s: %t, want %t", server, got, want)
		}
	}
}

// TestControlPlanes checks when the machine of an API server may be removed.
func TestControlPlanes(t *testing.T) {
	port := int32(6443)
	node := &v1.Node{Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Address: "192.0.2.1"}}}}
	for name, tc := range map[string]struct {
		servers []string
		want    error
	}{
		"the only one":   {[]string{"192.0.2.1"}, errOnlyControlPlane},
		"one of several": {[]string{"192.0.2.1", "192.0.2.9"}, nil},
		"another":        {[]string{"192.0.2.9"}, nil},
		"unknown":        {nil, errUnknownServers},
	} {
		t.Run(name, func(t *testing.T) {
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
				Ports: []discoveryv1.EndpointPort{{Port: &port}}}
			for _, s := range tc.servers {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{s}})
			}
			if err := checkServers(slice, node); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
}
