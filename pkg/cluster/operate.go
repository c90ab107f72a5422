// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/provision"
)

// AddNode adds a node and returns when the node is ready. If name is empty, it uses the next free
// name.
func AddNode(ctx context.Context, c *Config, name string, deps Deps) error {
	if err := ensureSeed(ctx, c, deps); err != nil {
		return err
	}
	if err := call(ctx, c.dirs().socket(), "POST", "/nodes/add", url.Values{"name": {name}}, nil); err != nil {
		return err
	}
	return waitNodes(ctx, c, newProgress(deps))
}

// JoinNode adds a node whose kubelet requests its certificates with a join token, and returns when
// the node is ready. If token is empty, it creates a token.
func JoinNode(ctx context.Context, c *Config, name, token string, deps Deps) error {
	if err := ensureSeed(ctx, c, deps); err != nil {
		return err
	}
	if token == "" {
		var err error
		if token, err = CreateToken(ctx, c, joinPatience, deps); err != nil {
			return err
		}
	}
	kubeconfig, err := BootstrapKubeconfig(c, token)
	if err != nil {
		return err
	}
	if err := call(ctx, c.dirs().socket(), "POST", "/nodes/add",
		url.Values{"name": {name}, "bootstrap": {string(kubeconfig)}}, nil); err != nil {
		return err
	}
	return waitNodes(ctx, c, newProgress(deps))
}

// StartNode starts a node that was stopped by KillNode, and returns when the node is ready again.
func StartNode(ctx context.Context, c *Config, name string, deps Deps) error {
	p := newProgress(deps)
	if err := call(ctx, c.dirs().socket(), "POST", "/nodes/start", url.Values{"name": {name}}, nil); err != nil {
		return err
	}
	if err := waitSign(ctx, c, name, p); err != nil {
		return err
	}
	return waitNodes(ctx, c, p)
}

var errNoSign = errors.New("its kubelet has not renewed its lease")

// waitSign waits until a node's kubelet has renewed its Lease since p began. The Node object is not
// enough: for a while after the node was killed, its condition is still Ready.
func waitSign(ctx context.Context, c *Config, name string, p *progress) error {
	client, err := machineClient(c)
	if err != nil {
		return err
	}
	err = p.wait(ctx, nodePatience, func(ctx context.Context) error {
		lease, err := client.CoordinationV1().Leases(core.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if renewed := lease.Spec.RenewTime; renewed == nil || renewed.Time.Before(p.began) {
			return errNoSign
		}
		return nil
	})
	if err != nil {
		d := c.dirs()
		return p.failed("node "+name, err, d.log("node-"+name), d.node(name).log("containerd"), d.node(name).log("kubelet"))
	}
	return nil
}

// KillNode kills all processes of a node at once, without any notice to the cluster, like a power
// failure. The node stays stopped until StartNode is called.
func KillNode(ctx context.Context, c *Config, name string) error {
	return call(ctx, c.dirs().socket(), "POST", "/nodes/kill", url.Values{"name": {name}}, nil)
}

// RemoveNode removes a node permanently: its host, its files and its Node object.
func RemoveNode(ctx context.Context, c *Config, name string) error {
	if err := call(ctx, c.dirs().socket(), "POST", "/nodes/remove", url.Values{"name": {name}}, nil); err != nil {
		return err
	}
	client, err := machineClient(c)
	if err != nil {
		return err
	}
	if err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove node object: %w", err)
	}
	return nil
}

// Command returns a command that runs argv inside a cluster: on the named node, or in the cluster's
// network namespace if node is empty.
func Command(ctx context.Context, c *Config, node string, argv []string) (*exec.Cmd, error) {
	st, err := Inspect(ctx, c)
	if err != nil {
		return nil, err
	}
	if node == "" {
		// The cluster's network namespace reaches all nodes and pods.
		return enter(ctx, st.Supervisor, []string{"--net"}, argv), nil
	}
	n, err := st.node(node)
	if err != nil {
		return nil, err
	}
	if n.Pid == 0 {
		return nil, fmt.Errorf("%s: %w", node, errNodeStopped)
	}
	cmd := enter(ctx, n.Pid, []string{"--mount", "--uts", "--ipc", "--net", "--pid"}, argv)
	cmd.Env = append(os.Environ(), "PATH="+insideTools+":"+insideBin+
		":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"CONTAINERD_NAMESPACE=k8s.io")
	return cmd, nil
}

func enter(ctx context.Context, pid int, namespaces, argv []string) *exec.Cmd {
	args := slices.Concat([]string{"--target", strconv.Itoa(pid)}, namespaces, []string{"--"}, argv)
	return exec.CommandContext(ctx, "nsenter", args...)
}

func (st *Status) node(name string) (*NodeStatus, error) {
	at := slices.IndexFunc(st.Nodes, func(n NodeStatus) bool { return n.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("%s: %w", name, errNoNode)
	}
	return &st.Nodes[at], nil
}

// LoadImages imports OCI archives into every running node.
func LoadImages(ctx context.Context, c *Config, archives []string) error {
	st, err := Inspect(ctx, c)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range st.Nodes {
		if n.Pid == 0 {
			continue
		}
		group.Go(func() error {
			socket := fmt.Sprintf("/proc/%d/root%s", n.Pid, provision.ContainerdSocket)
			loaded := provision.Images{Tools: c.ToolsDir, Socket: socket}
			for _, a := range archives {
				if err := loaded.Import(ctx, a); err != nil {
					return fmt.Errorf("node %s: %w", n.Name, err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

var errNoLog = errors.New("no such log")

// logFile returns the path of the log of a process. Names are, for example, apiserver, supervisor,
// kubelet-n1 or containerd-n2.
func (c *Config) logFile(name string) (string, error) {
	d := c.dirs()
	files := []string{d.log(name)}
	if process, node, ok := strings.Cut(name, "-"); ok {
		files = append(files, d.node(node).log(process))
	}
	for _, f := range files {
		if filepath.IsLocal(name) && exists(f) {
			return f, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, errNoLog)
}

// Logs prints the log of a process. If follow is true, it also prints new lines as they are
// written, until ctx ends.
func Logs(ctx context.Context, c *Config, process string, follow bool, deps Deps) error {
	file, err := c.logFile(process)
	if err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	defer f.Close()
	for {
		if _, err := io.Copy(deps.Out, f); err != nil {
			return fmt.Errorf("log: %w", err)
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-deps.Clock.After(200 * time.Millisecond):
		}
	}
}

// joinPatience is the lifetime of a token that is created for a node that joins immediately.
const joinPatience = 10 * time.Minute

// CreateToken creates a join token that is valid for the duration life, and returns it.
func CreateToken(ctx context.Context, c *Config, life time.Duration, deps Deps) (string, error) {
	client, err := machineClient(c)
	if err != nil {
		return "", err
	}
	return provision.CreateToken(ctx, client, provision.TokenOptions{
		Life: life, Description: "created by ctl cluster",
	}, deps.Clock)
}

// BootstrapKubeconfig returns the kubeconfig with which a kubelet joins (--bootstrap-kubeconfig).
// It has the cluster's certificate authority and the token.
func BootstrapKubeconfig(c *Config, token string) ([]byte, error) {
	ca, err := os.ReadFile(c.dirs().control().PKI("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	return c.shared().BootstrapKubeconfig(c.clusterServer(), ca, token)
}

// Kubeconfig returns the administrator's kubeconfig.
func Kubeconfig(c *Config) ([]byte, error) {
	data, err := os.ReadFile(c.dirs().control().Kubeconfig("admin"))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return data, nil
}
