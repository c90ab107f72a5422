// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/machine/adopt"
	"keelson.dev/keelson/pkg/provision"
)

// TestHealth checks how the controller manager and the scheduler are asked for their health.
func TestHealth(t *testing.T) {
	const manager, scheduler = provision.ControllerManager, provision.Scheduler
	flag := func(name, value string) adopt.Flag { return adopt.Flag{Name: name, Value: value} }
	for name, tc := range map[string]struct {
		program string
		flags   []adopt.Flag
		want    string
	}{
		"kubeadm's":   {manager, []adopt.Flag{flag("bind-address", "127.0.0.1")}, "127.0.0.1:10257"},
		"defaults":    {scheduler, nil, "127.0.0.1:10259"},
		"all":         {scheduler, []adopt.Flag{flag("bind-address", "::")}, "127.0.0.1:10259"},
		"other":       {scheduler, []adopt.Flag{flag("bind-address", "::1"), flag("secure-port", "7")}, "[::1]:7"},
		"none":        {scheduler, []adopt.Flag{flag("secure-port", "0")}, ""},
		"another one": {provision.APIServer, nil, ""},
	} {
		if tc.want != "" {
			tc.want = "https://" + tc.want + "/healthz"
		}
		if got := healthURL(&adopt.Program{Name: tc.program, Flags: tc.flags}); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	ok := true
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ok {
			http.Error(w, "leaderElection failed", http.StatusInternalServerError)
		}
	}))
	defer s.Close()
	if err := answersHealthy(t.Context(), s.URL); err != nil {
		t.Error(err)
	}
	ok = false
	err := answersHealthy(t.Context(), s.URL)
	if !errors.Is(err, errUnhealthy) || !strings.Contains(err.Error(), "leaderElection") {
		t.Errorf("error %v", err)
	}
}

// kubeconfig writes the credentials of a client, and returns the path of the file.
func kubeconfig(t *testing.T, rc *rest.Config) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: rc.Host, CertificateAuthorityData: rc.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: rc.CertData, ClientKeyData: rc.KeyData}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubelet.conf")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestReturned checks the control plane after a return: with the kubelet's credentials, and no others. A machine
// whose credentials are missing or expired returns, too.
func TestReturned(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Status: v1.NodeStatus{
		Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
	}}
	if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	name, seconds := "m1", int32(40)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: time.Now().Add(time.Hour)},
	}}
	leases := s.Client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubelet := s.UserConfig(t, "system:node:m1", "system:nodes")
	expired := testserver.Start(t, testserver.Options{}).UserConfig(t, "system:node:m1", "system:nodes")
	expired.Host, expired.CAData = kubelet.Host, kubelet.CAData
	for name, tc := range map[string]struct{ file, unchecked string }{
		"kubelet": {kubeconfig(t, kubelet), ""},
		"none":    {filepath.Join(t.TempDir(), "kubelet.conf"), "kubelet.conf"},
		"expired": {kubeconfig(t, expired), "Unauthorized"},
		"another": {kubeconfig(t, s.UserConfig(t, "admin", "system:masters")), "not the name of a kubelet"},
	} {
		m := &adopter{steps: &steps{Deps: Deps{Clock: clock.Real()}}}
		if err := m.returned(t.Context(), tc.file); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if (m.unchecked == nil) != (tc.unchecked == "") ||
			m.unchecked != nil && !strings.Contains(m.unchecked.Error(), tc.unchecked) {
			t.Errorf("%s: not checked because of %v, want %q", name, m.unchecked, tc.unchecked)
		}
	}
}
