// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent runs on each machine of a cluster. It gives the programs of its machine one address
// of the API that works while any API server does, and obtains the certificate of the machine's
// proxy.
//
// Invariants:
//
//   - The agent knows the API servers from the endpoints of the Service kubernetes. It keeps them in
//     a file, so that it can start when no API server it knows from elsewhere is reachable.
//   - The list is never replaced by an empty one.
//   - The agent also asks API servers that are not in the list any more for their epochs, because the list may
//     be that of control planes that are cut off from the restored cluster. It forgets those that were removed
//     from the cluster.
//   - A machine that has seen an API server of a restored cluster uses no server that has the state
//     before the restore.
//   - The agent has no rights of its own: it uses the credentials of the machine's kubelet, as soon
//     as the kubelet has some.
//   - If the agent ends, pods and the other programs go on running. Their connections to API servers end
//     only if the agent is not started again. If that is known, each ends between two requests if possible.
//
// It does not start or stop programs; systemd does.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/balancer"
	"keelson.dev/keelson/pkg/follow"
)

// apiService is the Service of the API servers, in the namespace default. The API servers keep its
// endpoints up to date.
const apiService = "kubernetes"

// credentialPoll is how often the agent looks whether the kubelet has got its credentials.
const credentialPoll = 250 * time.Millisecond

// Config configures an agent.
type Config struct {
	// Node is the name of the machine's node.
	Node string
	// Listener accepts the connections of this machine's programs. Run closes it.
	Listener net.Listener
	// Connections are those that the agent's last process has passed to HandOver.
	Connections []balancer.Connection
	// HandOver, if not nil, receives the open connections when Run ends, unless the cause of that is
	// balancer.ErrStopped.
	HandOver func(balancer.Connection) error
	// Servers is the file with the addresses of the API servers: a JSON list of HOST:PORT. The agent
	// replaces it when the servers change.
	Servers string
	// Former is the file with the addresses of earlier API servers, in the same form. It need not exist.
	Former string
	// Epoch is the file with the highest epoch of the cluster that the machine knows.
	Epoch string
	// Version is the version of Kubernetes of this machine's release, with that of Keelson. Older API servers are
	// avoided.
	Version string
	// Seen is called after each check of the API servers with the epochs of those that have answered, and with
	// the highest epoch that the machine knows, or 0 if no server with it is ready. It may be nil.
	Seen func(ctx context.Context, shown map[string]int64, highest int64)
	// Kubeconfig is the kubelet's kubeconfig. It may not exist yet.
	Kubeconfig string
	// ProxyPair is the file for the certificate of the machine's proxy and its key. Its name must end
	// with -current.pem. Older certificates are in the same directory.
	ProxyPair string
	// Tasks run as soon as there are credentials, with a client that has them. They return when their
	// context ends.
	Tasks []func(context.Context, kubernetes.Interface) error
	Clock clock.Clock
	Log   *slog.Logger
}

// Run runs the agent until ctx ends, and then returns nil. It returns an error if the file of servers
// cannot be read, or if the listener or the certificate store fails.
func Run(ctx context.Context, c Config) error {
	servers, err := ReadServers(c.Servers)
	if err != nil {
		return err
	}
	b := balancer.New(c.Clock, c.Log)
	epochs := newEpochs(c.Epoch, b, c.Log)
	b.SetServers(servers)
	b.HandOver(c.Version, c.HandOver)
	known := newKnown(c, b)
	c.Log.Info("Load balancer of the API servers started", "address", c.Listener.Addr(), "servers", servers,
		"connections", len(c.Connections))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.Serve(ctx, c.Listener, c.Connections...) })
	group.Go(func() error { return c.withCredentials(ctx, known, epochs) })
	return group.Wait()
}

// withCredentials does what needs the kubelet's credentials, as soon as they exist.
func (c *Config) withCredentials(ctx context.Context, k *known, e *epochs) error {
	rc, err := Credentials(ctx, c.Kubeconfig, c.Clock)
	if err != nil {
		return nil // ctx has ended
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	own, err := version.ParseSemantic(c.Version)
	if err != nil {
		return fmt.Errorf("version of this release: %w", err)
	}
	checks, err := newChecks(rc, e, newAges(own, k.balancer), c.Clock, c.Log)
	if err != nil {
		return err
	}
	checks.seen = c.Seen
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { c.follow(ctx, client, k); return nil })
	group.Go(func() error { checks.run(ctx); return nil })
	group.Go(func() error { checks.runFormer(ctx, k); return nil })
	group.Go(func() error { return c.keepProxyCertificate(ctx, client) })
	for _, task := range c.Tasks {
		group.Go(func() error { return task(ctx, client) })
	}
	return group.Wait()
}

// Credentials returns the client configuration in a kubelet's kubeconfig as soon as the kubelet has
// credentials. Its error is that of ctx.
func Credentials(ctx context.Context, kubeconfig string, clk clock.Clock) (*rest.Config, error) {
	for {
		rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err == nil {
			if _, err = rest.TLSConfigFor(rc); err == nil {
				return rc, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-clk.After(credentialPoll):
		}
	}
}

// follow keeps the balancer's servers and their file up to date until ctx ends.
func (c *Config) follow(ctx context.Context, client kubernetes.Interface, k *known) {
	type lists struct{ servers, removed []string }
	slices := follow.NewCache(follow.Config[discoveryv1.EndpointSlice, lists]{
		Source: follow.Source(client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault), follow.Named(apiService)),
		Keep: func(s *discoveryv1.EndpointSlice) *lists {
			return &lists{ServersIn(s), removedIn(s)}
		},
		Changed: func(_ types.NamespacedName, _, now *lists) {
			if now != nil {
				k.forget(now.removed)
				k.use(now.servers)
			}
		},
		Clock: c.Clock, Log: c.Log,
	})
	slices.Run(ctx)
}

// ServersIn returns the addresses in an EndpointSlice, sorted.
func ServersIn(s *discoveryv1.EndpointSlice) []string {
	var out []string
	for _, p := range s.Ports {
		if p.Port == nil {
			continue
		}
		for _, e := range s.Endpoints {
			for _, address := range e.Addresses {
				out = append(out, net.JoinHostPort(address, strconv.Itoa(int(*p.Port))))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
