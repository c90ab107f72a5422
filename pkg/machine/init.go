// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/filelock"
	"keelson.dev/keelson/pkg/machine/agent"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/machine/nodes"
	"keelson.dev/keelson/pkg/provision"
)

// Time limits for the steps of Init and Join.
const (
	apiTimeout  = time.Minute
	nodeTimeout = 2 * time.Minute
)

// configMap is the ConfigMap in kube-system with the configuration that all machines of the cluster
// have in common, under configKey. Machines that join read it.
const (
	configMap = "keelson-config"
	configKey = "config.yaml"
)

// Deps has what the package needs from its environment.
type Deps struct {
	Clock clock.Clock
	Log   *slog.Logger
	Out   io.Writer // receives progress messages
}

// Init creates a cluster whose first control plane is on this machine. c is valid and has all
// defaults. It returns when the machine's node is ready, and prints how other machines join.
func Init(ctx context.Context, c *config.KeelsonConfiguration, d Deps) error {
	dir, err := release()
	if err != nil {
		return err
	}
	of, err := cluster(c)
	if err != nil {
		return err
	}
	s := &steps{Deps: d}
	err = s.run("certificates and configuration", func() error {
		return writeControlPlane(ctx, dir, c, controlPlane(c, of), nil, d.Clock, apiAddress(c))
	})
	if err != nil {
		return err
	}
	if err := s.run("containerd", func() error { return startUnits(ctx, containerd) }); err != nil {
		return err
	}
	api, err := s.startControlPlane(ctx)
	if err != nil {
		return err
	}
	if err := s.addObjects(ctx, api, of, c); err != nil {
		return err
	}
	return s.invite(ctx, api.client, dir, c)
}

// addObjects creates the add-ons and the machine's node, and waits until the node is ready.
func (s *steps) addObjects(ctx context.Context, api administrator, of *provision.Cluster,
	c *config.KeelsonConfiguration) error {
	// Otherwise the controller manager could not approve the certificates of the node at first.
	if err := of.ApplyRights(ctx, api.objects, s.Clock); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return s.run("add-ons", func() error {
			if err := of.ApplyAddons(ctx, api.objects, s.Clock); err != nil {
				return err
			}
			return api.share(ctx, c)
		})
	})
	group.Go(func() error {
		return s.run("node "+c.Node.Name, func() error {
			if err := api.createNode(ctx, c); err != nil {
				return err
			}
			return s.startNode(ctx, func(ctx context.Context) error { return nodeReady(ctx, api.client, c.Node.Name) })
		})
	})
	return group.Wait()
}

// writeControlPlane writes all files of a machine with a control plane. a has the authorities of the
// cluster that it joins, or is nil for the first control plane, which makes them. servers are the
// addresses of all known API servers.
func writeControlPlane(ctx context.Context, dir string, c *config.KeelsonConfiguration, p *provision.ControlPlane,
	a provision.Authorities, clk clock.Clock, servers ...string) error {
	n := node(c, p.Cluster, false)
	// First, because it makes the files by which Reset recognizes the machine.
	if err := writeMachine(ctx, dir, c, n); err != nil {
		return err
	}
	// The agent may run: since before a restore, or since an earlier attempt.
	err := filelock.While(certificatesLock, func() error { return writeCertificates(p, n, a, clk) })
	if err != nil {
		return err
	}
	if err := errors.Join(writeArgs(provision.APIServer, p.APIServerArgs()), writeManagerArgs(p)); err != nil {
		return err
	}
	return agent.WriteServers(serverList, servers)
}

// writeCertificates writes the certificates, keys and kubeconfig files of a control plane and its node. a
// is as for writeControlPlane.
func writeCertificates(p *provision.ControlPlane, n *provision.Node, a provision.Authorities, clk clock.Clock) error {
	joins := a != nil
	if joins {
		if err := p.WriteAuthorities(a); err != nil {
			return err
		}
	}
	// Certificates that are left from an earlier attempt may be from other authorities.
	if err := errors.Join(p.IssueCertificates(joins, clk), p.WriteConfiguration()); err != nil {
		return err
	}
	if err := p.WriteKubeconfigs(clk); err != nil {
		return err
	}
	authority, err := os.ReadFile(controlDir.PKI("ca.crt"))
	if err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	return errors.Join(n.IssueCertificates(controlDir, joins, clk), n.WriteKubeconfigs(authority))
}

// writeManagerArgs writes the flags of the controller manager and the scheduler.
func writeManagerArgs(p *provision.ControlPlane) error {
	return errors.Join(writeArgs(provision.ControllerManager, p.ControllerManagerArgs()),
		writeArgs(provision.Scheduler, p.SchedulerArgs()))
}

// writeMachine writes the files that each machine needs, except credentials, and makes the units of
// the release in dir known to systemd.
func writeMachine(ctx context.Context, dir string, c *config.KeelsonConfiguration, n *provision.Node) error {
	if err := writeConfiguration(c); err != nil {
		return err
	}
	if err := useRelease(dir); err != nil {
		return err
	}
	if err := n.WriteFiles(); err != nil {
		return err
	}
	for program, args := range map[string][]string{
		containerd: n.ContainerdArgs(), kubelet: kubeletArgs(c, n), proxy: n.ProxyArgs(), agentName: agentArgs(c),
	} {
		if err := writeArgs(program, args); err != nil {
			return err
		}
	}
	if err := linkUnits(ctx); err != nil {
		return err
	}
	return systemctl(ctx, "enable", unit(switcher)) // for a switch that a power failure interrupts
}

// writeConfiguration writes the first file of a machine, and makes its directories.
func writeConfiguration(c *config.KeelsonConfiguration) error {
	for _, dir := range []string{ownConfig, state} { // Reset recognizes the machine by ownConfig
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("directory: %w", err)
		}
	}
	var own bytes.Buffer
	if err := config.Print(&own, c); err != nil {
		return err
	}
	return atomicfile.WriteDurably(configFile, own.Bytes(), 0o600)
}

// administrator is a client of the cluster with all rights.
type administrator struct {
	client  kubernetes.Interface
	objects dynamic.Interface
}

// startControlPlane starts the control plane and imports the images of the release meanwhile. It
// returns when the API server is ready.
func (s *steps) startControlPlane(ctx context.Context) (administrator, error) {
	var api administrator
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.run("images", func() error { return importOwnImages(ctx) }) })
	group.Go(func() error {
		return s.run("control plane", func() (err error) {
			err = startUnits(ctx, agentName, provision.APIServer, provision.ControllerManager, provision.Scheduler)
			if err != nil {
				return err
			}
			if api, err = newAdministrator(local); err != nil {
				return err
			}
			return s.await(ctx, apiTimeout, api.ready)
		})
	})
	return api, group.Wait()
}

// newAdministrator returns a client of the API server at a URL, with the credentials of a user that has
// all rights, also before the add-ons give some to other administrators. A control plane that kubeadm has
// made may have only the other administrator's.
func newAdministrator(server string) (a administrator, err error) {
	file := controlDir.Kubeconfig("super-admin")
	if !exists(file) {
		file = controlDir.Kubeconfig("admin")
	}
	rc, err := clientcmd.BuildConfigFromFlags(server, file)
	if err != nil {
		return a, fmt.Errorf("administrator's kubeconfig: %w", err)
	}
	rc.QPS = -1
	if a.client, err = kubernetes.NewForConfig(rc); err != nil {
		return a, fmt.Errorf("client: %w", err)
	}
	if a.objects, err = dynamic.NewForConfig(rc); err != nil {
		return a, fmt.Errorf("client: %w", err)
	}
	return a, nil
}

// ready returns nil if the API server is ready.
func (a administrator) ready(ctx context.Context) error {
	return a.client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// share stores what machines that join must know about the cluster.
func (a administrator) share(ctx context.Context, c *config.KeelsonConfiguration) error {
	var data bytes.Buffer
	if err := config.Print(&data, c.Shared()); err != nil {
		return err
	}
	_, err := a.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: configMap}, Data: map[string]string{configKey: data.String()},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("configuration of the cluster: %w", err)
	}
	return nil
}

// createNode creates the Node of this machine, with its addresses. Nodes may not report addresses of
// an API server, which this machine has; an administrator may give them.
func (a administrator) createNode(ctx context.Context, c *config.KeelsonConfiguration) error {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: c.Node.Name, Labels: map[string]string{nodes.ControlPlaneLabel: ""}},
		Status:     v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeHostName, Address: c.Node.Name}}},
	}
	maps.Copy(n.Labels, c.Node.Labels)
	for _, address := range c.Node.Addresses {
		n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: address})
	}
	for _, text := range c.Node.Taints { // KEY=VALUE:EFFECT or KEY:EFFECT
		at := strings.LastIndex(text, ":")
		key, value, _ := strings.Cut(text[:at], "=")
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Value: value, Effect: v1.TaintEffect(text[at+1:])})
	}
	_, err := a.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("node: %w", err)
	}
	return nil
}

// readmit makes all machines remember the API server of this machine, also if it was removed from the cluster before.
func (a administrator) readmit(ctx context.Context, c *config.KeelsonConfiguration) error {
	addresses := append([]string{c.APIServer.AdvertiseAddress}, c.Node.Addresses...)
	if err := agent.ReadmitServers(ctx, a.client, addresses); err != nil {
		return fmt.Errorf("API servers: %w", err)
	}
	return nil
}

// startNode starts the programs of a node. ready returns nil when the node is ready.
func (s *steps) startNode(ctx context.Context, ready func(context.Context) error) error {
	if err := startUnits(ctx, kubelet); err != nil {
		return err
	}
	if err := s.await(ctx, nodeTimeout, ready); err != nil {
		return err
	}
	// The agent requests the proxy's certificate as soon as the node exists.
	err := s.await(ctx, nodeTimeout, func(context.Context) error {
		_, err := os.Stat(provision.AgentProxyPair)
		return err
	})
	if err != nil {
		return fmt.Errorf("certificate of the proxy: %w", err)
	}
	return startUnits(ctx, proxy)
}

var errNotReady = errors.New("the node is not ready")

func nodeReady(ctx context.Context, client kubernetes.Interface, name string) error {
	n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !nodes.IsReady(n) {
		return fmt.Errorf("%w: %s", errNotReady, cmp.Or(nodes.Readiness(n).Message, "it has not reported"))
	}
	return nil
}

// invite prints what an operator can do with the new cluster. dir is the directory of the release.
func (s *steps) invite(ctx context.Context, client kubernetes.Interface, dir string,
	c *config.KeelsonConfiguration) error {
	token, err := provision.CreateToken(ctx, client, provision.TokenOptions{
		Life: provision.DefaultTokenLife, Description: "created by ctl init",
	}, s.Clock)
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(controlDir.PKI("ca.crt"))
	if err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	hashes, err := authorityHashes(authority)
	if err != nil {
		return err
	}
	invitation := &Invitation{Server: apiAddress(c), Token: token, Hashes: hashes}
	fmt.Fprintf(s.Out, `
The cluster %s is ready. To use it on this machine:

  export PATH=%s/bin:$PATH KUBECONFIG=%s
  ctl get nodes

To add a machine, install the same release there, and run as root, within %s:

  %s/bin/%s
`, c.ClusterName, current, controlDir.Kubeconfig("admin"), duration.HumanDuration(provision.DefaultTokenLife), dir,
		invitation.Command())
	return nil
}
