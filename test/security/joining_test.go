// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/controllers/certificates"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

const nodesGroup = "system:nodes"

// newNode returns a Node with an address, as a kubelet registers it.
func newNode(name, address string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if address != "" {
		n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address},
			{Type: v1.NodeHostName, Address: name}}
	}
	return n
}

// TestJoiningNodeClaims checks that a new node cannot claim pod ranges, names or addresses that
// belong to the cluster or to another node, and that it cannot prevent its own removal.
func TestJoiningNodeClaims(t *testing.T) {
	l := newLab(t, func(c *config.Config) {
		c.Transport.NodeRanges = []string{"10.50.0.0/24", "169.254.0.0/16", "127.0.0.0/8", "10.96.0.0/16"}
	})
	_, err := l.Client.CoreV1().Nodes().Create(t.Context(), newNode("victim", "10.50.0.11"), metav1.CreateOptions{})
	check(t, err)
	for name, tc := range map[string]struct {
		node   string
		change func(*v1.Node)
		ok     bool
	}{
		"nothing": {change: func(*v1.Node) {}, ok: true},
		"a taint, as kubelets may": {change: func(n *v1.Node) {
			n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
		}, ok: true},
		"the API server's route":        {change: func(n *v1.Node) { n.Spec.PodCIDRs = []string{"10.50.0.1/32"} }},
		"every route":                   {change: func(n *v1.Node) { n.Spec.PodCIDR = "0.0.0.0/0" }},
		"the API server's name":         {node: "kubernetes.default.svc", change: func(*v1.Node) {}},
		"the machine's name":            {node: "localhost", change: func(*v1.Node) {}},
		"a service's name":              {node: "webhook.ns.svc.cluster.local", change: func(*v1.Node) {}},
		"an address outside the ranges": {change: func(n *v1.Node) { n.Status.Addresses[0].Address = "192.0.2.1" }},
		"loopback":                      {change: func(n *v1.Node) { n.Status.Addresses[0].Address = "127.0.0.1" }},
		"the metadata server":           {change: func(n *v1.Node) { n.Status.Addresses[0].Address = "169.254.169.254" }},
		"a service's address":           {change: func(n *v1.Node) { n.Status.Addresses[0].Address = "10.96.0.77" }},
		"another node's address":        {change: func(n *v1.Node) { n.Status.Addresses[0].Address = "10.50.0.11" }},
		"another node's name":           {change: func(n *v1.Node) { n.Status.Addresses[1].Address = "victim" }},
		"the API server's host name":    {change: func(n *v1.Node) { n.Status.Addresses[1].Address = "kubernetes.default" }},
		"many addresses": {change: func(n *v1.Node) {
			n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "10.50.0.99"})
		}},
		"a finalizer": {change: func(n *v1.Node) { n.Finalizers = []string{"example.com/stay"} }},
		"an owner": {change: func(n *v1.Node) {
			n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "victim", UID: "u"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.node == "" {
				tc.node = "joins"
			}
			kubelet := l.as(t, "system:node:"+tc.node, nodesGroup)
			n := newNode(tc.node, "10.50.0.12")
			tc.change(n)
			_, err := kubelet.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
			switch {
			case tc.ok:
				check(t, err)
			case !apierrors.IsForbidden(err):
				t.Errorf("registration of a node: %v", err)
			}
			if err == nil {
				check(t, l.Client.CoreV1().Nodes().Delete(t.Context(), tc.node, metav1.DeleteOptions{}))
			}
		})
	}
}

// TestNodeChangesItself checks that a registered node cannot make the claims of
// TestJoiningNodeClaims by updates of its Node.
func TestNodeChangesItself(t *testing.T) {
	l := newLab(t, nil)
	nodes := l.Client.CoreV1().Nodes()
	_, err := nodes.Create(t.Context(), newNode("victim", "10.50.0.11"), metav1.CreateOptions{})
	check(t, err)
	kubelet := l.as(t, "system:node:joins", nodesGroup).CoreV1().Nodes()
	_, err = kubelet.Create(t.Context(), newNode("joins", "10.50.0.12"), metav1.CreateOptions{})
	check(t, err)
	for name, tc := range map[string]struct {
		status bool
		change func(*v1.Node)
	}{
		"another's route":        {change: func(n *v1.Node) { n.Spec.PodCIDRs = []string{"10.50.0.11/32"} }},
		"a finalizer":            {change: func(n *v1.Node) { n.Finalizers = []string{"example.com/stay"} }},
		"another node's address": {status: true, change: func(n *v1.Node) { n.Status.Addresses[0].Address = "10.50.0.11" }},
		"loopback": {status: true, change: func(n *v1.Node) {
			n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeExternalIP, Address: "127.0.0.1"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := nodes.Get(t.Context(), "joins", metav1.GetOptions{})
			check(t, err)
			tc.change(n)
			update := kubelet.Update
			if tc.status {
				update = kubelet.UpdateStatus
			}
			if _, err = update(t.Context(), n, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("update of a node by itself: %v", err)
			}
		})
	}
	t.Run("pods after it was cordoned", func(t *testing.T) {
		n, err := nodes.Get(t.Context(), "joins", metav1.GetOptions{})
		check(t, err)
		n.Spec.Unschedulable = true
		n, err = nodes.Update(t.Context(), n, metav1.UpdateOptions{})
		check(t, err)
		n.Spec.Unschedulable = false
		if _, err = kubelet.Update(t.Context(), n, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("a node uncordoned itself: %v", err)
		}
	})
}

// TestNodeReportsAddressThatMoved checks nodes that report the address of another node, as happens
// when DHCP exchanges the addresses of two machines. While the other node is up, the report is
// rejected. While the other node is down, a younger node may report the address, although the older
// node still owns it.
func TestNodeReportsAddressThatMoved(t *testing.T) {
	l := newLab(t, nil)
	nodes := l.Client.CoreV1().Nodes()
	kubelet := func(name string) corev1client.NodeInterface {
		return l.as(t, "system:node:"+name, nodesGroup).CoreV1().Nodes()
	}
	elder, err := nodes.Create(t.Context(), newNode("elder", "10.50.0.11"), metav1.CreateOptions{})
	check(t, err)
	// Wait for the next second, because creation times have a resolution of one second.
	eventually(t, "the next second",
		func(context.Context) bool { return time.Now().Unix() > elder.CreationTimestamp.Unix() })
	_, err = nodes.Create(t.Context(), newNode("younger", "10.50.0.12"), metav1.CreateOptions{})
	check(t, err)
	report := func(name string, change func(*v1.Node)) error {
		n, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
		check(t, err)
		change(n)
		n.Status.NodeInfo.OSImage = "reported"
		_, err = kubelet(name).UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
		return err
	}
	ready := func(name string, status v1.ConditionStatus) {
		n, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
		check(t, err)
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status}}
		_, err = nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
		check(t, err)
	}
	at := func(address string) func(*v1.Node) {
		return func(n *v1.Node) { n.Status.Addresses[0].Address = address }
	}
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("the address of a node that has not reported", report("younger", at("10.50.0.11")))
	ready("elder", v1.ConditionTrue)
	refused("the address of a node that is ready", report("younger", at("10.50.0.11")))
	ready("elder", v1.ConditionUnknown)
	refused("the name of a node that is down",
		report("younger", func(n *v1.Node) { n.Status.Addresses[1].Address = "elder" }))
	refused("the address of a node that is down, as another type", report("younger", func(n *v1.Node) {
		n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeExternalIP, Address: "10.50.0.11"})
	}))
	ready("younger", v1.ConditionUnknown)
	refused("the address of a younger node that is down: the older one would own it", report("elder", at("10.50.0.12")))
	// For an exchange, the younger node reports its new address first. Its old address is then free
	// for the older node.
	check(t, report("younger", at("10.50.0.11")))
	check(t, report("elder", at("10.50.0.12")))
	n, err := nodes.Get(t.Context(), "elder", metav1.GetOptions{})
	check(t, err)
	if n.Status.Addresses[0].Address != "10.50.0.12" || n.Status.NodeInfo.OSImage != "reported" {
		t.Errorf("status after the swap: %+v", n.Status)
	}
}

// TestNodeOnControlPlaneHost checks that a kubelet on a host of the API server cannot register a
// Node. If an administrator has created the Node, the kubelet may report its addresses.
func TestNodeOnControlPlaneHost(t *testing.T) {
	l := newLab(t, func(c *config.Config) { c.HTTP.ExternalHostname = "plane.example.com" })
	kubelet := l.as(t, "system:node:plane.example.com", nodesGroup).CoreV1().Nodes()
	made := newNode("plane.example.com", "10.96.0.77")
	if _, err := kubelet.Create(t.Context(), made, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet registers a reserved name: %v", err)
	}
	made.Status = v1.NodeStatus{}
	n, err := l.Client.CoreV1().Nodes().Create(t.Context(), made, metav1.CreateOptions{})
	check(t, err)
	n.Status.Addresses = newNode(n.Name, "10.96.0.77").Status.Addresses
	n, err = l.Client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	check(t, err)
	// A kubelet uses a Node that exists if its own is refused for this reason.
	again := newNode(n.Name, "10.96.0.77")
	if _, err := kubelet.Create(t.Context(), again, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a kubelet registers the Node that an administrator has created: %v", err)
	}
	n.Status.NodeInfo.OSImage = "reported"
	n, err = kubelet.UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	check(t, err)
	if len(n.Status.Addresses) != 2 || n.Status.NodeInfo.OSImage != "reported" {
		t.Errorf("status: %+v", n.Status)
	}
}

// joinLab returns a lab whose nodes join with bootstrap tokens, with the controllers that approve
// and sign certificates. joins returns a client that has the token with the given ID.
func joinLab(t *testing.T) (l *lab, joins func(id string) kubernetes.Interface) {
	t.Helper()
	l = newLab(t, nil)
	for role, group := range map[string]string{
		"system:node-bootstrapper": "system:bootstrappers",
		"system:certificates.k8s.io:certificatesigningrequests:nodeclient":     "system:bootstrappers",
		"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": nodesGroup,
	} {
		_, err := l.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: group}},
		}, metav1.CreateOptions{})
		check(t, err)
	}
	cert, key := newSigner(t)
	controllertest.Run(t, l.Server, controller.Options{
		SigningCert: cert, SigningKey: key, SigningDuration: time.Hour, ApproveServing: true,
		ProtectNodes: true, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}, certificates.NewApproving, certificates.NewSigning)
	return l, func(id string) kubernetes.Interface { return l.as(t, "system:bootstrap:"+id, "system:bootstrappers") }
}

func newSigner(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	check(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	check(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// requestCertificate creates a CertificateSigningRequest for a node, with a new key.
func requestCertificate(t *testing.T, c kubernetes.Interface, name, node string, serving bool, hosts ...string) {
	t.Helper()
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node,
		Organization: []string{nodesGroup}}}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	check(t, err)
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}
	csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	csr.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
	csr.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	if serving {
		csr.Spec.SignerName = certificatesv1.KubeletServingSignerName
		csr.Spec.Usages[1] = certificatesv1.UsageServerAuth
	}
	allowed(t, func(ctx context.Context) error {
		_, err := c.CertificatesV1().CertificateSigningRequests().Create(ctx, csr, metav1.CreateOptions{})
		return err
	})
}

// issued reports whether a CertificateSigningRequest has got its certificate.
func (l *lab) issued(t *testing.T, name string) bool {
	t.Helper()
	csr, err := l.Client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	return len(csr.Status.Certificate) > 0
}

// settled creates another request and waits for its approval. The approver has most likely
// processed earlier requests by then.
func (l *lab) settled(t *testing.T, c kubernetes.Interface, after string) {
	t.Helper()
	requestCertificate(t, c, "after-"+after, "after-"+after, false)
	eventually(t, "a certificate for a new node", func(context.Context) bool { return l.issued(t, "after-"+after) })
}

// TestJoinTokenImpersonates checks that a join token cannot be used to get a certificate of an
// existing node.
func TestJoinTokenImpersonates(t *testing.T) {
	l, joins := joinLab(t)
	_, err := l.Client.CoreV1().Nodes().Create(t.Context(), newNode("n1", "10.50.0.11"), metav1.CreateOptions{})
	check(t, err)
	attacker := joins("evil00")
	requestCertificate(t, attacker, "stolen", "n1", false)
	l.settled(t, attacker, "stolen")
	if l.issued(t, "stolen") {
		t.Error("a join token's holder got the certificate of a node that exists")
	}
	t.Run("a node that has not registered yet", func(t *testing.T) {
		requestCertificate(t, joins("good00"), "first", "n2", false)
		eventually(t, "the first request", func(context.Context) bool { return l.issued(t, "first") })
		requestCertificate(t, attacker, "second", "n2", false)
		l.settled(t, attacker, "second")
		if l.issued(t, "second") {
			t.Error("two machines got the certificate of one node")
		}
	})
	t.Run("reserved name", func(t *testing.T) {
		requestCertificate(t, attacker, "reserved", "kubernetes.default.svc", false)
		l.settled(t, attacker, "reserved")
		if l.issued(t, "reserved") {
			t.Error("a join token's holder got the certificate of a node with the API server's name")
		}
	})
	t.Run("renewal", func(t *testing.T) {
		requestCertificate(t, l.as(t, "system:node:n1", nodesGroup), "renewal", "n1", false)
		eventually(t, "the node's own renewal", func(context.Context) bool { return l.issued(t, "renewal") })
	})
}

// TestServingCertificateOfAPIServer checks that nodes cannot get serving certificates for the names
// and addresses of the API server or of a Service.
func TestServingCertificateOfAPIServer(t *testing.T) {
	l, joins := joinLab(t)
	for name, tc := range map[string]struct{ node, address, host string }{
		"api-name":  {"kubernetes.default.svc", "10.50.0.21", "kubernetes.default.svc"},
		"localhost": {"localhost", "10.50.0.22", "localhost"},
		"loopback":  {"n3", "127.0.0.1", "127.0.0.1"},
		"linklocal": {"n4", "169.254.169.254", "169.254.169.254"},
		"service":   {"n5", "10.96.0.77", "10.96.0.77"},
	} {
		// Create the Node as an administrator, so that only the approver can reject the request.
		_, err := l.Client.CoreV1().Nodes().Create(t.Context(), newNode(tc.node, tc.address), metav1.CreateOptions{})
		check(t, err)
		requestCertificate(t, l.as(t, "system:node:"+tc.node, nodesGroup), name, tc.node, true, tc.host)
		l.settled(t, joins("after0"), name)
		if l.issued(t, name) {
			t.Errorf("node %s got a serving certificate for %s", tc.node, tc.host)
		}
	}
}
