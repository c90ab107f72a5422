// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/httpstream"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/outbound"
)

// Proxies forwards HTTP requests to nodes, pods and services, for the subresource proxy.
type Proxies struct {
	client    kubernetes.Interface
	kubelets  *Kubelets
	transport *http.Transport
	authz     authorizer.UnconditionalAuthorizer
	limit     int64

	mu     sync.Mutex
	random *rand.Rand
}

// NewProxies returns the proxies. They use random to choose endpoints; the caller must not use it
// afterwards. authz authorizes streams to nodes; if it is nil, any user who may send the request
// may open a stream. Upgraded connections are limited to limit bytes per second in each direction;
// 0 means no limit. Serving certificates of pods are not verified, because no CA signs them.
func NewProxies(client kubernetes.Interface, kubelets *Kubelets, authz authorizer.UnconditionalAuthorizer, limit int64,
	random *rand.Rand) *Proxies {
	// As in Kubernetes, certificates of pods and services are not verified.
	insecure := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
	t := transport(insecure, outbound.NewDialer(kubelets.policy))
	return &Proxies{client: client, kubelets: kubelets, transport: t, authz: authz, limit: limit, random: random}
}

// Nodes returns the handler of nodes/proxy.
func (p *Proxies) Nodes() resource.ConnectFunc {
	return p.connector(func() runtime.Object { return &corev1.NodeProxyOptions{} }, p.node)
}

// Pods returns the handler of pods/proxy.
func (p *Proxies) Pods() resource.ConnectFunc {
	return p.connector(func() runtime.Object { return &corev1.PodProxyOptions{} }, p.pod)
}

// Services returns the handler of services/proxy.
func (p *Proxies) Services() resource.ConnectFunc {
	return p.connector(func() runtime.Object { return &corev1.ServiceProxyOptions{} }, p.service)
}

// find returns the URL and the transport of the object that id names. id is "name", "name:port" or
// "scheme:name:port".
type find func(ctx context.Context, namespace, id string) (*url.URL, http.RoundTripper, error)

func (p *Proxies) connector(newOptions func() runtime.Object, where find) resource.ConnectFunc {
	return func(w http.ResponseWriter, r *http.Request, req *resource.Request) error {
		opts := newOptions()
		setPath(opts, subpath(req))
		_, node := opts.(*corev1.NodeProxyOptions)
		if node && httpstream.IsUpgradeRequest(r) {
			// A stream to a kubelet can run commands in containers, so it needs the right to create.
			// A WebSocket begins with a GET, which was authorized only as a read.
			if err := mayCreate(r.Context(), p.authz); err != nil {
				return err
			}
		}
		if err := req.Connect(r, opts); err != nil {
			return err
		}
		location, transport, err := where(r.Context(), req.Namespace, req.Name)
		if err != nil {
			return err
		}
		location.Path = utilnet.JoinPreservingTrailingSlash(location.Path, subpath(req))
		if !node {
			// For an upgrade, the handler takes the query from the location. Kubernetes drops the
			// query (kubernetes/kubernetes#77142). Here it is dropped only for nodes, because the
			// query of a kubelet's stream contains the command to run. Clients run commands by the
			// subresources exec and attach of pods instead.
			location.RawQuery = r.URL.RawQuery
		}
		h := proxy.NewUpgradeAwareHandler(location, transport, true, false, responder{})
		h.MaxBytesPerSec = p.limit
		h.ServeHTTP(w, r)
		return nil
	}
}

// subpath returns the part of the request's path after ".../proxy".
func subpath(req *resource.Request) string {
	parts := req.Info.Parts
	if len(parts) <= 3 {
		if strings.HasSuffix(req.Info.Path, "/") {
			return "/"
		}
		return ""
	}
	path := "/" + strings.Join(parts[3:], "/")
	if strings.HasSuffix(req.Info.Path, "/") {
		path += "/"
	}
	return path
}

func setPath(opts runtime.Object, path string) {
	switch o := opts.(type) {
	case *corev1.NodeProxyOptions:
		o.Path = path
	case *corev1.PodProxyOptions:
		o.Path = path
	case *corev1.ServiceProxyOptions:
		o.Path = path
	}
}

// allowed returns an error if ip is an address at which a proxy would reach the server's own
// machine or network, and not a pod.
func allowed(ip string) error {
	addr, err := netip.ParseAddr(ip)
	if err != nil || !addr.IsGlobalUnicast() || addr.Is4In6() {
		return apierrors.NewBadRequest("address not allowed")
	}
	return nil
}

func (p *Proxies) node(ctx context.Context, _, id string) (*url.URL, http.RoundTripper, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(id)
	if !ok {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("invalid node request %q", id))
	}
	k, err := p.kubelets.of(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	// This lookup only serves to return Kubernetes' error. The dialer checks the address to which it
	// connects.
	addresses, err := net.DefaultResolver.LookupIPAddr(ctx, k.host)
	if err != nil || len(addresses) == 0 {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("no addresses for hostname: %v", err))
	}
	for _, a := range addresses {
		if !a.IP.IsGlobalUnicast() {
			return nil, nil, apierrors.NewBadRequest("address not allowed")
		}
	}
	if port == "" || port == k.port {
		return k.url("", nil), p.kubelets.transports().proxied, nil
	}
	return &url.URL{Scheme: scheme, Host: net.JoinHostPort(k.host, port)}, p.transport, nil
}

func (p *Proxies) pod(ctx context.Context, namespace, id string) (*url.URL, http.RoundTripper, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(id)
	if !ok {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("invalid pod request %q", id))
	}
	pod, err := p.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	for _, c := range pod.Spec.Containers {
		if port == "" && len(c.Ports) > 0 {
			port = strconv.Itoa(int(c.Ports[0].ContainerPort))
		}
	}
	if finished(pod) {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("pod %q has finished: phase is %s", name, pod.Status.Phase))
	}
	ip := pod.Status.PodIP
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	if err := allowed(ip); err != nil {
		return nil, nil, err
	}
	return &url.URL{Scheme: scheme, Host: hostPort(ip, port)}, p.transport, nil
}

// finished reports whether a pod has finished. The address in its status may by now belong to
// another pod.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func hostPort(ip, port string) string {
	if port != "" {
		return net.JoinHostPort(ip, port)
	}
	if strings.Contains(ip, ":") {
		return "[" + ip + "]"
	}
	return ip
}

func (p *Proxies) service(ctx context.Context, namespace, id string) (*url.URL, http.RoundTripper, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(id)
	if !ok {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("invalid service request %q", id))
	}
	svc, err := p.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	if port, err = portName(svc, port); err != nil {
		return nil, nil, err
	}
	list, err := p.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + name})
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	host := p.endpoint(svc, list.Items, port, func(e *discoveryv1.Endpoint) bool { return p.isPod(ctx, namespace, e) })
	if host == "" {
		return nil, nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	}
	return &url.URL{Scheme: scheme, Host: host}, p.transport, nil
}

// endpoint returns the address and port of a random endpoint of a service, or "" if there is none. The
// endpoint is ready, has the port with the given name, and passes the function accept. If possible, its
// address is of the first address family of the service.
func (p *Proxies) endpoint(svc *corev1.Service, list []discoveryv1.EndpointSlice, port string,
	accept func(*discoveryv1.Endpoint) bool) string {
	order := p.shuffled(len(list))
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(familyRank(svc, &list[i]), familyRank(svc, &list[j]))
	})
	for _, i := range order {
		for _, sp := range list[i].Ports {
			if sp.Name == nil || *sp.Name != port || sp.Port == nil {
				continue
			}
			for _, j := range p.shuffled(len(list[i].Endpoints)) {
				e := &list[i].Endpoints[j]
				ready := e.Conditions.Ready == nil || *e.Conditions.Ready
				if ready && len(e.Addresses) > 0 && accept(e) {
					return net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*sp.Port)))
				}
			}
		}
	}
	return ""
}

// familyRank returns 0 if the addresses in a slice have the first address family of the service, and 1
// otherwise.
func familyRank(svc *corev1.Service, slice *discoveryv1.EndpointSlice) int {
	if families := svc.Spec.IPFamilies; len(families) > 0 && string(families[0]) != string(slice.AddressType) {
		return 1
	}
	return 0
}

// portName returns the name of the service port with the given number. If port is no number, it
// returns port.
func portName(svc *corev1.Service, port string) (string, error) {
	number, err := strconv.ParseInt(port, 10, 64)
	if err != nil {
		return port, nil
	}
	for _, sp := range svc.Spec.Ports {
		if int64(sp.Port) == number {
			return sp.Name, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, svc.Name))
}

// isPod reports whether the first address of an endpoint, the only one that is used, is that of the
// pod that the endpoint refers to.
// The pod must be in the service's namespace and must not have finished. (Kubernetes does not check
// whether it has finished.) The check is needed because users can write any address into slices.
func (p *Proxies) isPod(ctx context.Context, namespace string, e *discoveryv1.Endpoint) bool {
	target, address := e.TargetRef, e.Addresses[0]
	if target == nil || target.Kind != "Pod" || target.Namespace != namespace || allowed(address) != nil {
		return false
	}
	pod, err := p.client.CoreV1().Pods(namespace).Get(ctx, target.Name, metav1.GetOptions{})
	if err != nil || finished(pod) {
		return false
	}
	for _, ip := range pod.Status.PodIPs {
		if ip.IP == address {
			return true
		}
	}
	return pod.Status.PodIP == address
}

func (p *Proxies) shuffled(n int) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.Perm(n)
}

// Close ends idle connections.
func (p *Proxies) Close() { p.transport.CloseIdleConnections() }
