// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podcertificate

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/metrics"
)

const (
	testNode   = "n1"
	testSigner = "example.com/signer"
)

// server implements the interfaces of clients that a Manager uses. Its watches stream lists, as the
// real API server's do.
type server struct {
	mu       sync.Mutex
	requests map[types.NamespacedName]*certificatesv1.PodCertificateRequest
	created  int // number of requests that were ever created
	accounts map[types.NamespacedName]types.UID
	watches  map[*watch.FakeWatcher]struct{} // open watches
	selector string                          // field selector of the last watch
	gate     chan struct{}                   // if not nil, requests are created when it is closed
}

func newServer() *server {
	return &server{
		requests: map[types.NamespacedName]*certificatesv1.PodCertificateRequest{},
		accounts: map[types.NamespacedName]types.UID{{Namespace: "ns", Name: "sa"}: "sa-uid"},
		watches:  map[*watch.FakeWatcher]struct{}{},
	}
}

type requestClient struct {
	certificatesclient.PodCertificateRequestInterface
	*server
	namespace string
}

func (s *server) PodCertificateRequests(namespace string) certificatesclient.PodCertificateRequestInterface {
	return requestClient{server: s, namespace: namespace}
}

func (c requestClient) Create(_ context.Context, r *certificatesv1.PodCertificateRequest,
	_ metav1.CreateOptions) (*certificatesv1.PodCertificateRequest, error) {
	if c.gate != nil {
		<-c.gate
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.created++
	r = r.DeepCopy()
	r.Name = fmt.Sprint(r.GenerateName, c.created)
	c.requests[types.NamespacedName{Namespace: c.namespace, Name: r.Name}] = r
	c.send(watch.Added, r)
	return r.DeepCopy(), nil
}

func (c requestClient) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.selector = o.FieldSelector
	w := watch.NewFakeWithChanSize(1000, false)
	for _, r := range c.requests {
		w.Add(r.DeepCopy())
	}
	w.Action(watch.Bookmark, &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
	c.watches[w] = struct{}{}
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watches, w)
	})
	return w, nil
}

// send sends an event to all watches. The caller holds s.mu.
func (s *server) send(kind watch.EventType, r *certificatesv1.PodCertificateRequest) {
	for w := range s.watches {
		r := r.DeepCopy()
		r.ResourceVersion = "1"
		w.Action(kind, r)
	}
}

type accountClient struct {
	coreclient.ServiceAccountInterface
	*server
	namespace string
}

func (s *server) ServiceAccounts(namespace string) coreclient.ServiceAccountInterface {
	return accountClient{server: s, namespace: namespace}
}

func (c accountClient) Get(_ context.Context, name string, _ metav1.GetOptions) (*v1.ServiceAccount, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, ok := c.accounts[types.NamespacedName{Namespace: c.namespace, Name: name}]
	if !ok {
		return nil, apierrors.NewNotFound(v1.Resource("serviceaccounts"), name)
	}
	return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name, UID: uid}}, nil
}

// pending returns the names of the requests that the signer has not answered, in their order.
func (s *server) pending() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, r := range s.requests {
		if len(r.Status.Conditions) == 0 {
			out = append(out, name.Name)
		}
	}
	slices.Sort(out)
	return out
}

func (s *server) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := types.NamespacedName{Namespace: "ns", Name: name}
	s.send(watch.Deleted, s.requests[k])
	delete(s.requests, k)
}

// answer gives a request a final condition. If it is Issued, it also issues a certificate, which
// expires an hour later and is to be renewed after 30 minutes.
func (s *server) answer(t *testing.T, name, condition string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests[types.NamespacedName{Namespace: "ns", Name: name}]
	r.Status.Conditions = []metav1.Condition{{Type: condition, Status: "True", Reason: "R", Message: "M"}}
	if condition == certificatesv1.PodCertificateRequestConditionTypeIssued {
		at := clock.Real().Now()
		request, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
		if err != nil {
			t.Fatal(err)
		}
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: at, NotAfter: at.Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, private)
		if err != nil {
			t.Fatal(err)
		}
		begin, end := metav1.NewTime(at.Add(30*time.Minute)), metav1.NewTime(at.Add(time.Hour))
		r.Status.CertificateChain = "leaf\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
		r.Status.BeginRefreshAt, r.Status.NotAfter = &begin, &end
	}
	s.send(watch.Modified, r)
}

// node is a running Manager with its server.
type node struct {
	*server
	t *testing.T
	m *Manager

	mu      sync.Mutex  // guards the fields below
	events  []string    // pods, types and reasons of events
	changed []types.UID // pods whose credentials changed
}

// start runs a Manager in the bubble of synctest. The end of the test stops it.
func start(t *testing.T) *node {
	n := &node{server: newServer(), t: t}
	n.m = New(Config{
		NodeName: testNode, Node: func() *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{UID: "node-uid"}} },
		Requests: n.server, Accounts: n.server,
		Changed: func(pod types.UID) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.changed = append(n.changed, pod)
		},
		Event: func(pod *v1.Pod, kind, reason, message string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events = append(n.events, strings.Join([]string{pod.Name, kind, reason}, " "))
		},
		Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Rand: mathrand.New(mathrand.NewPCG(1, 2)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- n.m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return n
}

// advance waits for d in the virtual time of synctest, and then for all goroutines.
func advance(d time.Duration) {
	clock.Real().Sleep(d)
	synctest.Wait()
}

func testPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name + "-uid")},
		Spec:       v1.PodSpec{ServiceAccountName: "sa"},
	}
}

// get calls Credentials for the only source of a pod. It returns the PEM texts one after the other.
func (n *node) get(pod *v1.Pod) (string, error) {
	key, chain, err := n.m.Credentials(pod, "v", 0, &v1.PodCertificateProjection{
		SignerName: testSigner, KeyType: "ECDSAP256", MaxExpirationSeconds: new(int32(7200)),
		UserAnnotations: map[string]string{"example.com/a": "b"},
	})
	if err != nil {
		return "", err
	}
	if _, err := tls.X509KeyPair(chain, key); err != nil {
		n.t.Errorf("key and certificate do not match: %v", err)
	}
	if !bytes.HasPrefix(chain, []byte("-----BEGIN CERTIFICATE-----\n")) {
		n.t.Errorf("the chain is %q", chain)
	}
	return string(key) + string(chain), nil
}

func (n *node) mustGet(pod *v1.Pod) string {
	n.t.Helper()
	text, err := n.get(pod)
	if err != nil {
		n.t.Fatal(err)
	}
	return text
}

func (n *node) expectError(pod *v1.Pod, want string) {
	n.t.Helper()
	if _, err := n.get(pod); err == nil || err.Error() != want {
		n.t.Errorf("error %v, want %s", err, want)
	}
}

func (n *node) expectPending(want ...string) {
	n.t.Helper()
	if got := n.pending(); !slices.Equal(got, want) {
		n.t.Errorf("pending requests %q, want %q", got, want)
	}
}

// expectEvents checks which events and changes there were since the last call.
func (n *node) expectEvents(changes int, want ...string) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.events, want) {
		n.t.Errorf("events %q, want %q", n.events, want)
	}
	if len(n.changed) != changes {
		n.t.Errorf("changes of %q, want %d", n.changed, changes)
	}
	n.events, n.changed = nil, nil
}

func (n *node) expectState(want string) {
	n.t.Helper()
	if d := cmp.Diff(map[metrics.PodCertificate]int{{Signer: testSigner, State: want}: 1}, n.m.States()); d != "" {
		n.t.Errorf("states (-want +got):\n%s", d)
	}
}

func (n *node) openWatches() int {
	n.server.mu.Lock()
	defer n.server.mu.Unlock()
	return len(n.watches)
}

const notIssued = "credential bundle is not issued yet"

// TestIssue follows a source from its first request to its renewal.
func TestIssue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		pod := testPod("p")
		n.expectError(pod, notIssued)
		advance(0)
		n.expectPending("req-1")
		n.expectState(stateNotIssued)
		n.server.mu.Lock()
		r := n.requests[types.NamespacedName{Namespace: "ns", Name: "req-1"}].DeepCopy()
		n.server.mu.Unlock()
		r.Spec.StubPKCS10Request = nil
		if d := cmp.Diff(&certificatesv1.PodCertificateRequest{
			ObjectMeta: metav1.ObjectMeta{
				Name: "req-1", GenerateName: "req-", Namespace: "ns",
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p-uid"}},
			},
			Spec: certificatesv1.PodCertificateRequestSpec{
				SignerName: testSigner, PodName: "p", PodUID: "p-uid", ServiceAccountName: "sa", ServiceAccountUID: "sa-uid",
				NodeName: testNode, NodeUID: "node-uid", MaxExpirationSeconds: new(int32(7200)),
				UnverifiedUserAnnotations: map[string]string{"example.com/a": "b"},
			},
		}, r); d != "" {
			t.Errorf("request (-want +got):\n%s", d)
		}

		advance(8 * time.Minute)
		n.expectPending("req-1") // no second request while the first is pending
		n.expectEvents(0)
		n.answer(t, "req-1", "Issued")
		advance(0)
		n.expectEvents(1)
		first := n.mustGet(pod)
		n.expectState(stateFresh)

		advance(29 * time.Minute)
		n.expectPending()
		advance(maxJitter + checkInterval + time.Minute)
		n.expectPending("req-2")
		if n.mustGet(pod) != first {
			t.Error("the credentials changed before the next were issued")
		}
		n.answer(t, "req-2", "Issued")
		advance(0)
		n.expectEvents(1)
		if second := n.mustGet(pod); second == first {
			t.Error("the credentials were not renewed")
		}
		n.expectState(stateFresh)
	})
}

// TestLateRenewal checks that a pod keeps expired credentials until the signer answers, and that
// events report the delay once.
func TestLateRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		pod := testPod("p")
		n.expectError(pod, notIssued)
		advance(0)
		n.answer(t, "req-1", "Issued")
		advance(0)
		n.expectEvents(1)
		first := n.mustGet(pod)
		advance(50 * time.Minute)
		n.expectEvents(0, "p Warning CertificateOverdueForRefresh")
		n.expectState(stateOverdue)
		advance(15 * time.Minute)
		n.expectEvents(0, "p Warning CertificateExpired")
		n.expectState(stateExpired)
		if n.mustGet(pod) != first {
			t.Error("the credentials changed")
		}
		advance(24 * time.Hour)
		n.expectEvents(0)
		n.expectPending("req-2")
		n.answer(t, "req-2", "Issued")
		advance(0)
		n.expectEvents(1)
		n.expectState(stateFresh)
	})
}

// TestRefusal checks that there is no request after one that was denied or has failed, neither
// after the first nor after a renewal.
func TestRefusal(t *testing.T) {
	for _, condition := range []string{"Denied", "Failed"} {
		for _, renewal := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/renewal=%v", condition, renewal), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := start(t)
					pod := testPod("p")
					n.expectError(pod, notIssued)
					advance(0)
					name := "req-1"
					if renewal {
						n.answer(t, name, "Issued")
						advance(40 * time.Minute)
						n.expectEvents(1)
						name = "req-2"
					}
					n.answer(t, name, condition)
					advance(0)
					n.expectEvents(1, "p Warning "+condition)
					want := fmt.Sprintf(`PodCertificateRequest was permanently %s: reason="R" message="M"`, strings.ToLower(condition))
					n.expectError(pod, want)
					n.expectState(strings.ToLower(condition))
					advance(24 * time.Hour)
					n.expectEvents(0)
					n.expectPending()
					n.expectError(pod, want)
				})
			})
		}
	}
}

// TestDeletedRequest checks that the Manager replaces a request that a user has deleted, but not at
// once.
func TestDeletedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		pod := testPod("p")
		n.expectError(pod, notIssued)
		advance(0)
		n.remove("req-1")
		advance(lostAfter)
		n.expectPending()
		advance(maxJitter + checkInterval)
		n.expectPending("req-2")
		n.answer(t, "req-2", "Issued")
		advance(0)
		n.mustGet(pod)
	})
}

// TestRetry checks that a failed attempt to create a request is repeated, and that its error is
// reported until then.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		pod := testPod("p")
		pod.Spec.ServiceAccountName = "late"
		n.expectError(pod, notIssued)
		advance(time.Hour)
		n.expectError(pod, notIssued+`: service account: serviceaccounts "late" not found`)
		n.expectPending()
		n.server.mu.Lock()
		n.accounts[types.NamespacedName{Namespace: "ns", Name: "late"}] = "late-uid"
		n.server.mu.Unlock()
		advance(lastRetry)
		n.expectPending("req-1")
		n.expectError(pod, notIssued)
	})
}

// TestWatch checks that requests are watched only while a source exists, and that Forget drops the
// state of a pod and of no other pod.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		advance(time.Hour)
		if got := n.openWatches(); got != 0 {
			t.Fatalf("%d watches without sources", got)
		}
		first, second := testPod("a"), testPod("b")
		for round := range 2 {
			for i, pod := range []*v1.Pod{first, second} {
				n.expectError(pod, notIssued)
				advance(0)
				n.answer(t, fmt.Sprint("req-", 2*round+i+1), "Issued")
				advance(0)
				n.mustGet(pod)
			}
			if got := n.openWatches(); got != 1 || n.selector != "spec.nodeName="+testNode {
				t.Fatalf("%d watches, selector %q", got, n.selector)
			}
			n.m.Forget(first.UID)
			advance(2 * checkInterval)
			if got := slices.Collect(maps.Keys(n.m.sources)); !slices.Equal(got, []key{{second.UID, "v", 0}}) {
				t.Errorf("sources %v", got)
			}
			if n.openWatches() != 1 {
				t.Error("the watch ended too early")
			}
			n.m.Forget(second.UID)
			advance(2 * checkInterval)
			if got := n.openWatches(); got != 0 || len(n.m.sources) != 0 {
				t.Fatalf("%d watches, sources %v", got, n.m.sources)
			}
		}
		advance(24 * time.Hour)
		n.expectEvents(4)
		if n.created != 4 {
			t.Errorf("%d requests", n.created)
		}
	})
}

// TestForgetDuringRequest forgets a pod while its request is being created. The pod's next source
// must get its own request.
func TestForgetDuringRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		pod := testPod("p")
		n.gate = make(chan struct{})
		n.expectError(pod, notIssued)
		advance(0)
		n.m.Forget(pod.UID)
		n.expectError(pod, notIssued)
		close(n.gate)
		advance(0)
		n.expectPending("req-1", "req-2")
		n.answer(t, "req-1", "Issued")
		advance(0)
		n.expectError(pod, notIssued)
		n.answer(t, "req-2", "Issued")
		advance(0)
		n.mustGet(pod)
	})
}
