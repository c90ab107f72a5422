// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

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
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"keelson.dev/keelson/pkg/cluster"
)

// volumes is the directory on the machine in which the CSI driver stores its volumes. All nodes can
// access it.
const volumes = "/srv/keelson-soak-csi"

// up creates the cluster and installs everything that must exist before the baseline of the leak
// check is taken. The cluster runs a copy of the programs, so that an upgrade can replace them.
func (s *soak) up() {
	s.t.Helper()
	var err error
	if s.dir, err = os.MkdirTemp("", "keelson-soak-"); err != nil {
		s.t.Fatal(err)
	}
	programs, err := filepath.Abs("../../bin")
	if err != nil {
		s.t.Fatal(err)
	}
	bin := filepath.Join(s.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		s.t.Fatal(err)
	}
	for _, p := range programNames {
		if err := replace(filepath.Join(programs, p), filepath.Join(bin, p)); err != nil {
			s.t.Fatal(err)
		}
	}
	if s.upgrade == "" {
		s.upgrade = programs
	}
	s.ctl = filepath.Join(programs, "ctl")
	s.t.Cleanup(s.down)
	args := []string{"cluster", "up", "--name", clusterName, "--nodes", strconv.Itoa(nodes), "--bin-dir", bin,
		"--data-dir", s.data(), "--kubeconfig", s.kubeconfig()}
	if s.planes > 1 {
		args = append(args, "--control-planes", strconv.Itoa(s.planes))
	}
	s.mustRun(args...)
	if s.cfg, err = cluster.Load(clusterName, ""); err != nil {
		s.t.Fatal(err)
	}
	if s.rest, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig()); err != nil {
		s.t.Fatal(err)
	}
	s.rest.QPS = -1
	s.rest.ContentType = "application/vnd.kubernetes.protobuf"
	s.rest.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if s.client, err = kubernetes.NewForConfig(s.rest); err != nil {
		s.t.Fatal(err)
	}
	s.install()
}

func (s *soak) data() string       { return filepath.Join(s.dir, "data") }
func (s *soak) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// install installs the operator whose webhooks the workloads use, and the CSI driver.
func (s *soak) install() {
	s.t.Helper()
	for _, image := range []string{"operator", "csi"} {
		archive, err := filepath.Abs("../../.build/e2e-images/" + image + ".tar")
		if err != nil {
			s.t.Fatal(err)
		}
		s.mustRun("cluster", "load", "--name", clusterName, archive)
	}
	for _, file := range []string{"operator.yaml", "csi.yaml"} {
		manifest, err := os.ReadFile("../e2e/testdata/" + file)
		if err != nil {
			s.t.Fatal(err)
		}
		s.apply(strings.ReplaceAll(string(manifest), "/srv/keelson-e2e-csi", volumes))
	}
	s.eventually("the installed pods run", func(ctx context.Context) error {
		return errors.Join(s.podsReady(ctx, "operator"), s.podsReady(ctx, "csi"), s.podsReady(ctx, "kube-system"))
	})
}

// podsReady returns an error that names the pods of a namespace that are not ready, or nil.
func (s *soak) podsReady(ctx context.Context, namespace string) error {
	list, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("no pods in %s", namespace)
	}
	for _, p := range list.Items {
		ready := slices.ContainsFunc(p.Status.Conditions,
			func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
		if !ready || p.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s/%s on %s: %s, deleted: %v", namespace, p.Name, p.Spec.NodeName,
				p.Status.Phase, p.DeletionTimestamp)
		}
	}
	return nil
}

// down removes the cluster. If the test has failed, it first saves the logs.
func (s *soak) down() {
	if s.t.Failed() {
		logs := filepath.Join(os.TempDir(), fmt.Sprintf("keelson-soak-logs-%d", s.seed))
		s.keepLogs(logs)
		s.t.Logf("logs and history are in %s", logs)
		if s.keep {
			s.t.Logf("the cluster %s is left running, with its files in %s", clusterName, s.dir)
			return
		}
	}
	if out, err := exec.Command(s.ctl, "cluster", "down", "--name", clusterName).CombinedOutput(); err != nil {
		s.t.Errorf("cluster down: %v\n%s", err, out)
	}
	for _, dir := range []string{s.dir, volumes} {
		if err := os.RemoveAll(dir); err != nil {
			s.t.Error(err)
		}
	}
}

func (s *soak) keepLogs(dir string) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Log(err)
		return
	}
	var files []string
	for _, pattern := range []string{"logs/*.log*", "audit/*", "nodes/*/var/log/*.log*"} {
		found, _ := filepath.Glob(filepath.Join(s.data(), pattern)) // the pattern is valid, so there is no error
		files = append(files, found...)
	}
	found, _ := filepath.Glob(filepath.Join(s.dir, "*.jsonl"))
	for _, file := range append(files, found...) {
		name, _ := filepath.Rel(s.dir, file)
		if err := replace(file, filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))); err != nil {
			s.t.Log(err)
		}
	}
	for _, args := range [][]string{{"get", "all,pvc,sites,nodes", "-A", "-o", "wide"}, {"get", "events", "-A"},
		{"get", "pods", "-A", "-o", "yaml"}} {
		out, _ := s.run("", args...)
		if err := os.WriteFile(filepath.Join(dir, strings.Join(args[:2], "-")+".txt"), out, 0o644); err != nil {
			s.t.Log(err)
		}
	}
}

// replace copies source to target by a rename, so that a process that opens target sees either the
// old or the new file.
func replace(source, target string) error {
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(target+".new", data, info.Mode()); err != nil {
		return err
	}
	return os.Rename(target+".new", target)
}

// run runs ctl with the given input and arguments, and returns its output.
func (s *soak) run(stdin string, args ...string) ([]byte, error) {
	c := exec.Command(s.ctl, args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig(), "HOME="+s.dir)
	c.Stdin = strings.NewReader(stdin)
	return c.CombinedOutput()
}

func (s *soak) mustRun(args ...string) {
	s.t.Helper()
	if out, err := s.run("", args...); err != nil {
		s.t.Fatalf("ctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// apply applies manifests with ctl. It retries until that succeeds.
func (s *soak) apply(manifest string) {
	s.t.Helper()
	s.eventually("manifests are applied", func(context.Context) error {
		out, err := s.run(manifest, "apply", "-f", "-")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// status returns the processes of the cluster that are running.
func (s *soak) status(ctx context.Context) (*cluster.Status, error) {
	return cluster.Inspect(ctx, s.cfg)
}

// dialFrom returns a dial function that connects from the network namespace of a process.
func dialFrom(pid int) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		inside(pid, func() { conn, err = (&net.Dialer{}).DialContext(ctx, network, address) }, &err)
		return conn, err
	}
}

// inside calls f on a thread that has entered the network namespace of a process. The thread is not
// reused.
func inside(pid int, f func(), failed *error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			*failed = err
			return
		}
		defer ns.Close()
		if *failed = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); *failed == nil {
			f()
		}
	}()
	<-done
}
