// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connect forwards requests of clients to kubelets, pods and services: logs, exec, attach,
// port-forward and the proxies.
//
// It does not follow redirects, and does not forward the client's credentials. It connects only to
// addresses in API objects. Proxies do not connect to addresses of the server's own machine and
// network (loopback, link-local, multicast).
package connect

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/outbound"
)

const defaultKubeletPort = 10250

// KubeletConfig configures connections to kubelets.
type KubeletConfig struct {
	CertFile, KeyFile string // client certificate; may be empty
	CAFile            string // CA of the kubelets' serving certificates; if empty, these are not verified
	AddressTypes      []string
	// Outbound decides to which addresses the server may connect.
	Outbound outbound.Policy
	Clock    clock.Clock
}

// Kubelets looks up the kubelets of nodes and sends requests to them.
type Kubelets struct {
	client kubernetes.Interface
	types  []corev1.NodeAddressType
	cfg    KubeletConfig
	policy outbound.Policy // policy of requests of the node proxy
	// current has the transports with the content of the files of cfg, which were read at the time read.
	mu      sync.Mutex
	current *transports
	read    time.Time
}

// NewKubelets reads the files that cfg names. They are read again for requests, at most once each
// second, so that they can be replaced without a restart.
func NewKubelets(cfg KubeletConfig, client kubernetes.Interface) (*Kubelets, error) {
	k := &Kubelets{client: client, cfg: cfg, read: cfg.Clock.Now(), policy: cfg.Outbound.With(outbound.SpecialRanges())}
	for _, t := range cfg.AddressTypes {
		k.types = append(k.types, corev1.NodeAddressType(t))
	}
	files, err := cfg.read()
	if err != nil {
		return nil, err
	}
	k.current, err = k.newTransports(files)
	return k, err
}

// kubelet is the address of a node's kubelet.
type kubelet struct {
	host, port string
}

func (k kubelet) url(path string, query url.Values) *url.URL {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(k.host, k.port), Path: path, RawQuery: query.Encode()}
}

// of looks up the kubelet of a node.
func (k *Kubelets) of(ctx context.Context, node string) (kubelet, error) {
	obj, err := k.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return kubelet{}, err
	}
	port := obj.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port == 0 {
		port = defaultKubeletPort
	}
	for _, t := range k.types {
		for _, a := range obj.Status.Addresses {
			if a.Type == t {
				return kubelet{a.Address, strconv.Itoa(int(port))}, nil
			}
		}
	}
	return kubelet{}, fmt.Errorf("no preferred addresses found; known addresses: %v", obj.Status.Addresses)
}

// Close ends idle connections.
func (k *Kubelets) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current.close()
}
