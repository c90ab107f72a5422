// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"keelson.dev/keelson/pkg/cluster"
)

const (
	clusterName = "upgrade"
	planes      = 2
	nodes       = 2
)

// access has the clients of the cluster.
type access struct {
	cfg *cluster.Config
	// rest connects to the load balancer, with client-go's defaults.
	rest *rest.Config
	// client connects to the load balancer, without a limit on the rate of its requests.
	client kubernetes.Interface
	// servers has a client for each API server.
	servers []server
}

// server has clients of one API server.
type server struct {
	kubernetes.Interface
	dynamic dynamic.Interface
}

// up creates the cluster with the programs of 1.36. The supervisor of the cluster is the present ctl,
// which only starts the programs.
func (u *upgrade) up() {
	u.t.Helper()
	bin, data, kubeconfig := u.path("bin"), u.path("data"), u.path("kubeconfig")
	if err := os.Mkdir(bin, 0o755); err != nil {
		u.t.Fatal(err)
	}
	for _, p := range []string{"apiserver", "controller-manager", "scheduler", "kubelet", "cni", "proxy", "ctl"} {
		u.install(p, u.previousPrograms)
	}
	u.t.Cleanup(u.down)
	u.t.Logf("%s", u.run("", "cluster", "up", "--name", clusterName, "--bin-dir", bin, "--data-dir", data,
		"--kubeconfig", kubeconfig, "--nodes", fmt.Sprint(nodes), "--control-planes", fmt.Sprint(planes)))
	a := &access{}
	var err error
	must := func(errs ...error) {
		u.t.Helper()
		if err := errors.Join(errs...); err != nil {
			u.t.Fatal(err)
		}
	}
	a.cfg, err = cluster.Load(clusterName, data)
	must(err)
	a.rest, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(err)
	eager := rest.CopyConfig(a.rest)
	eager.QPS = -1
	a.client, err = kubernetes.NewForConfig(eager)
	must(err)
	st, err := cluster.Inspect(u.t.Context(), a.cfg)
	must(err)
	for i := range planes {
		one := rest.CopyConfig(eager)
		one.Host, one.Dial = fmt.Sprintf("https://10.50.0.%d:6443", 2+i), dialFrom(st.Supervisor)
		client, err := kubernetes.NewForConfig(one)
		dyn, dynErr := dynamic.NewForConfig(one)
		must(err, dynErr)
		a.servers = append(a.servers, server{client, dyn})
	}
	u.access = a
}

func (u *upgrade) path(name string) string { return filepath.Join(u.dir, name) }

// down removes the cluster. If the test has failed, it first saves the logs.
func (u *upgrade) down() {
	if u.t.Failed() {
		logs := filepath.Join(os.TempDir(), "keelson-upgrade-logs")
		u.keepLogs(logs)
		u.t.Logf("logs are in %s", logs)
		if os.Getenv("KEELSON_UPGRADE_KEEP") != "" {
			u.t.Logf("the cluster %s is left running, with its files in %s", clusterName, u.dir)
			return
		}
	}
	if out, err := u.command("", "cluster", "down", "--name", clusterName).CombinedOutput(); err != nil {
		u.t.Errorf("cluster down: %v\n%s", err, out)
	}
	if err := os.RemoveAll(u.dir); err != nil {
		u.t.Error(err)
	}
}

func (u *upgrade) keepLogs(dir string) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		u.t.Log(err)
		return
	}
	for _, pattern := range []string{"logs/*.log*", "nodes/*/var/log/*.log*"} {
		found, _ := filepath.Glob(u.path("data/" + pattern)) // the pattern is valid, so there is no error
		for _, file := range found {
			name, _ := filepath.Rel(u.path("data"), file)
			data, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(name, "/", "_")), data, 0o644)
			}
			if err != nil {
				u.t.Log(err)
			}
		}
	}
	for name, args := range map[string][]string{
		"pods.yaml": {"get", "pods", "-A", "-o", "yaml"}, "nodes.yaml": {"get", "nodes", "-o", "yaml"},
		"events.txt": {"get", "events", "-A"},
	} {
		out, _ := u.command("", args...).CombinedOutput() // the output contains the error
		if err := os.WriteFile(filepath.Join(dir, name), out, 0o644); err != nil {
			u.t.Log(err)
		}
	}
}

// install copies a program into the directory from which the cluster starts its programs. It renames
// the copy into place, because the old program may be running.
func (u *upgrade) install(program, from string) {
	u.t.Helper()
	target := filepath.Join(u.path("bin"), program)
	data, err := os.ReadFile(filepath.Join(from, program))
	if err == nil {
		err = os.WriteFile(target+".new", data, 0o755)
	}
	if err == nil {
		err = os.Rename(target+".new", target)
	}
	if err != nil {
		u.t.Fatal(err)
	}
}

// command returns a command that runs ctl with the cluster's kubeconfig.
func (u *upgrade) command(stdin string, args ...string) *exec.Cmd {
	return u.commandOf(u.presentPrograms, stdin, args...)
}

// commandOf is like command, with the ctl of a directory.
func (u *upgrade) commandOf(programs, stdin string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(programs, "ctl"), args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+u.path("kubeconfig"), "HOME="+u.dir)
	c.Stdin = strings.NewReader(stdin)
	return c
}

// run runs ctl and returns its output. The test fails if ctl fails.
func (u *upgrade) run(stdin string, args ...string) string {
	u.t.Helper()
	return u.runOf(u.presentPrograms, stdin, args...)
}

// runOf is like run, with the ctl of a directory.
func (u *upgrade) runOf(programs, stdin string, args ...string) string {
	u.t.Helper()
	out, err := u.commandOf(programs, stdin, args...).CombinedOutput()
	if err != nil {
		u.t.Fatalf("%v: %s/ctl %s: %v\n%s", u.at(), programs, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// restartWith restarts one process with the program of another directory.
func (u *upgrade) restartWith(process, programs string) {
	u.t.Helper()
	u.install(process[:strings.LastIndex(process, "-")], programs)
	u.restart(process)
}

// restart ends a process, and waits until it has been started again. For API servers and controller
// managers, it also waits until they work.
func (u *upgrade) restart(process string) {
	u.t.Helper()
	u.t.Logf("%v: restart of %s", u.at(), process)
	st, err := cluster.Inspect(u.t.Context(), u.cfg)
	if err != nil {
		u.t.Fatal(err)
	}
	old := st.Pids[process]
	if err := syscall.Kill(old, syscall.SIGTERM); err != nil {
		u.t.Fatalf("%s (%d): %v", process, old, err)
	}
	u.eventually(process+" runs again", func(ctx context.Context) error {
		st, err := cluster.Inspect(ctx, u.cfg)
		if err == nil && (st.Pids[process] == 0 || st.Pids[process] == old) {
			err = errors.New("not yet")
		}
		return err
	})
	switch process[:strings.LastIndex(process, "-")] {
	case "controller-manager":
		u.controllersWork()
	case "apiserver":
		u.serverReady(u.servers[process[len(process)-1]-'1'])
	}
}

func (u *upgrade) serverReady(s server) {
	u.t.Helper()
	u.eventually("API server is ready", func(ctx context.Context) error {
		return s.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// serves checks that the API servers and kubelets have version v, and that the cluster works.
func (u *upgrade) serves(v version) {
	u.t.Helper()
	minor, emulated := "37", "37"
	switch v {
	case previous:
		minor, emulated = "36", "36"
	case emulating:
		emulated = "36"
	case present:
	}
	for i, s := range u.servers {
		u.serverReady(s)
		have, err := s.Discovery().ServerVersion()
		if err != nil {
			u.t.Fatal(err)
		}
		if !strings.HasPrefix(have.GitVersion, "v1."+minor+".") || have.EmulationMinor != emulated {
			u.t.Errorf("API server %d is %+v, want %v", i+1, have, v)
		}
	}
	u.nodesRun(minor)
	u.controllersWork()
}

// nodesRun waits until all nodes are ready and have kubelets of a minor version.
func (u *upgrade) nodesRun(minor string) {
	u.t.Helper()
	u.eventually("nodes run 1."+minor, func(ctx context.Context) error {
		list, err := u.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range list.Items {
			ready := slices.ContainsFunc(n.Status.Conditions,
				func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue })
			if have := n.Status.NodeInfo.KubeletVersion; !strings.HasPrefix(have, "v1."+minor+".") || !ready {
				return fmt.Errorf("node %s: ready: %v, %s", n.Name, ready, have)
			}
		}
		return nil
	})
}

// dialFrom returns a dial function that connects from the network namespace of a process.
func dialFrom(pid int) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // the thread ends with the goroutine
			var ns *os.File
			if ns, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil {
				return
			}
			defer ns.Close()
			if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			}
		}()
		<-done
		return conn, err
	}
}
