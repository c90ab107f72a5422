// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"keelson.dev/keelson/test/machines/lab"
	"keelson.dev/keelson/test/unshare"
)

// limit is how long a step of a test may take.
const limit = 3 * time.Minute

// version is the version of the release in tests.
const version = "test"

// releaseDir returns a directory with the files of a release: the one in the environment variable
// KEELSON_RELEASE, or one with what make build, make tools and make images have built.
func releaseDir(t *testing.T) string {
	t.Helper()
	if os.Getenv("KEELSON_MACHINES") == "" {
		t.Skip("KEELSON_MACHINES is not set")
	}
	unshare.NeedRoot(t)
	if dir := os.Getenv("KEELSON_RELEASE"); dir != "" {
		return dir
	}
	out, err := exec.Command("testdata/release.sh").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// cell is a lab with the machines of a cluster.
type cell struct {
	*testing.T
	lab *lab.Lab
	env string // commands before each script
}

// newCell makes the lab with the given name.
func newCell(t *testing.T, name string) *cell {
	t.Helper()
	image, err := exec.Command("../../hack/machines.sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	c := &cell{T: t}
	c.lab, err = lab.New(c.within(), lab.Options{Dir: t.TempDir(), Name: name, Image: string(bytes.TrimSpace(image)),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *cell) within() context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), limit)
	c.Cleanup(cancel)
	return ctx
}

// noStrays makes the test fail if a machine sends packets to addresses outside the lab.
func (c *cell) noStrays() {
	c.Cleanup(func() {
		if strays, err := c.lab.Strays(context.Background()); err != nil || strays > 0 {
			c.Errorf("%d packets to addresses outside the lab, %v", strays, err)
		}
	})
}

// machine boots a machine and installs the release on it.
func (c *cell) machine(name, release string) *lab.Machine {
	c.Helper()
	m, err := c.lab.Boot(c.within(), name)
	if err == nil {
		err = m.CopyIn(release, "/usr/lib/keelson/"+version)
	}
	if err != nil {
		c.Fatal(err)
	}
	return m
}

// run runs a shell command on a machine and returns its output.
func (c *cell) run(m *lab.Machine, script string) string {
	c.Helper()
	out, err := m.Run(c.within(), "sh", "-ec", "export KUBECONFIG=/etc/kubernetes/admin.conf "+
		"PATH=/usr/lib/keelson/"+version+"/bin:$PATH\n"+c.env+script)
	if err != nil {
		log, _ := m.Run(c.within(), "journalctl", "--no-pager", "--lines=25", "--unit=keelson-*")
		c.Fatalf("%s: %s: %v\n%s\n%s", m.Name(), script, err, out, log)
	}
	return strings.TrimSpace(string(out))
}

// eviction are the flags of "ctl init" and "ctl join" for machines that share the disk of the machine on
// which the test runs.
const eviction = "--eviction-hard='memory.available<100Mi,nodefs.available<1%,imagefs.available<1%'"

// initialize creates a cluster on a machine, and returns the command by which other machines join.
func (c *cell) initialize(m *lab.Machine, flags string) (join string) {
	c.Helper()
	began := time.Now()
	out := c.run(m, "ctl init "+eviction+" "+flags)
	c.Logf("init: %.1f s\n%s", time.Since(began).Seconds(), out)
	found := regexp.MustCompile(`(?s)\S*/bin/(ctl join .*)$`).FindStringSubmatch(out)
	if found == nil {
		c.Fatal("init does not print how to join")
	}
	return found[1]
}

// join makes a machine a node of a cluster, and imports the images of tests.
func (c *cell) join(m *lab.Machine, command string) {
	c.Helper()
	began := time.Now()
	out := c.run(m, command+" "+eviction)
	c.Logf("join: %.1f s\n%s", time.Since(began).Seconds(), out)
	c.importImages(m)
}

// write writes a file of a machine.
func (c *cell) write(m *lab.Machine, path, content string) {
	c.Helper()
	if _, err := m.RunInput(c.within(), strings.NewReader(content), "tee", path); err != nil {
		c.Fatal(err)
	}
}

// importImages imports the images of tests on a machine.
func (c *cell) importImages(m *lab.Machine) {
	c.Helper()
	for _, image := range []string{"nginx", "busybox"} {
		if err := m.CopyIn("../../.build/images/"+image+".tar", "/root/"+image+".tar"); err != nil {
			c.Error(err)
		}
		c.run(m, "/usr/lib/keelson/current/tools/ctr -n k8s.io images import /root/"+image+".tar")
	}
}

// TestCluster makes a cluster of three machines with "ctl init" and "ctl join". It checks that a
// Deployment on the workers can be reached by its Service's name, and that the cluster comes back
// after a power failure of the control plane.
func TestCluster(t *testing.T) {
	release := releaseDir(t)
	c := newCell(t, "cluster")
	c.noStrays()
	machines := make([]*lab.Machine, 3)
	var all sync.WaitGroup
	for i, name := range []string{"m1", "m2", "m3"} {
		all.Go(func() { machines[i] = c.machine(name, release) })
	}
	all.Wait()
	first := machines[0]
	join := c.initialize(first, "--register-with-taints=node-role.kubernetes.io/control-plane:NoSchedule")
	c.refusesStrangers(machines[1], join)
	for _, m := range machines[1:] {
		all.Go(func() { c.join(m, join) })
	}
	all.Wait()
	c.run(first, `
		ctl wait --for=condition=Ready nodes --all --timeout=60s
		ctl create deployment web --image=nginx --replicas=2
		ctl patch deployment web --patch '{"spec": {"template": {"spec": {"containers": [
			{"name": "nginx", "imagePullPolicy": "Never"}]}}}}'
		ctl expose deployment web --port=80
		ctl rollout status deployment/web --timeout=60s
		ctl rollout status deployment/coredns --namespace=kube-system --timeout=60s`)
	// With --stdin, the output of a container that ends at once can be lost, as in kubectl.
	get := `ctl run get --restart=Never --image=busybox --image-pull-policy=Never -- \
			wget -q -T 5 -O - http://web.default.svc.cluster.local >/dev/null
		ctl wait --for=jsonpath='{.status.phase}'=Succeeded pod/get --timeout=30s >/dev/null
		ctl logs get && ctl delete pod get >/dev/null`
	if out := c.run(first, get); !strings.Contains(out, "nginx") {
		t.Errorf("the Service answers %q", out)
	}
	c.memory(machines)
	for _, m := range machines {
		pinned := c.run(m, `/usr/lib/keelson/current/tools/ctr -n k8s.io images ls -q \
			'labels."io.cri-containerd.pinned"==pinned'`)
		if !strings.Contains(pinned, "/coredns:") || !strings.Contains(pinned, "/ingress:") ||
			strings.Contains(pinned, "nginx") {
			t.Errorf("images that the kubelet of %s keeps: %q", m.Name(), pinned)
		}
	}

	if err := first.PowerOff(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := first.PowerOn(c.within()); err != nil {
		t.Fatal(err)
	}
	c.run(first, `until ctl get --raw /readyz >/dev/null 2>&1; do sleep 0.1; done
		ctl wait --for=condition=Ready nodes --all --timeout=60s`)
	t.Logf("after a power failure of the control plane, all nodes are ready after %.1f s", time.Since(began).Seconds())
	if out := c.run(first, get); !strings.Contains(out, "nginx") {
		t.Errorf("the Service answers %q", out)
	}
	if failed := c.run(first, "systemctl --failed --quiet --plain"); failed != "" {
		t.Errorf("failed units:\n%s", failed)
	}
}

// refusesStrangers checks that a machine with a wrong token or hash does not join, and that nothing
// is written to it.
func (c *cell) refusesStrangers(m *lab.Machine, join string) {
	c.Helper()
	for name, change := range map[string]struct{ pattern, with, want string }{
		"wrong token": {`--token \S+`, "--token abcdef.0123456789abcdef", "Unauthorized"},
		"wrong hash":  {`sha256:\S+`, "sha256:" + strings.Repeat("0", 64), "no certificate authority with the given hash"},
		"no hash":     {`--ca-cert-hash \S+`, "", "--ca-cert-hash is missing"},
	} {
		wrong := regexp.MustCompile(change.pattern).ReplaceAllString(join, change.with)
		out := c.run(m, wrong+" 2>&1 && exit 1; test ! -e /etc/keelson && test ! -e /etc/kubernetes")
		if !strings.Contains(out, change.want) {
			c.Errorf("%s: %s", name, out)
		}
	}
}

// memory logs the anonymous memory of the programs of each machine, in megabytes.
func (c *cell) memory(machines []*lab.Machine) {
	for _, m := range machines {
		c.Logf("anonymous memory of %s:\n%s", m.Name(), c.run(m, `
			for p in apiserver controller-manager scheduler agent kubelet proxy containerd; do
				pid=$(systemctl show --property=MainPID --value keelson-$p)
				[ "$pid" = 0 ] || awk -v p=$p '/^RssAnon/ {printf "%6.1f %s\n", $2 / 1000, p}' /proc/$pid/status
			done`))
	}
}
