// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"
	"time"

	"keelson.dev/keelson/test/machines/lab"
)

// clientManifest has a pod with a client of the API server that reads the authorities only at its start.
//
//go:embed testdata/client.yaml
var clientManifest string

// loopScript sends requests to the API server for ever, and records those that fail. Its kubeconfig has the
// authority of the time when it was made, and a token. It is not a writer of startWriter, because that is one
// process with one connection: only a program that starts for each request reads its files and verifies
// the server's certificate each time.
//
//go:embed testdata/loop.sh
var loopScript string

// pkiCell is a cluster whose certificates a test replaces: a control plane, a worker, and clients that must
// not notice it.
type pkiCell struct {
	*cell
	first, worker *lab.Machine
	before        string // what must not change
}

// newPKICell makes the cluster and starts the clients. If follow is true, these read the authorities again
// from time to time: a client that trusts only an expired authority refuses the server.
func newPKICell(t *testing.T, name string, follow bool, flags string) *pkiCell {
	t.Helper()
	manifest, authorities := clientManifest, ""
	if follow {
		manifest = strings.ReplaceAll(manifest, `value: "false"`, `value: "true"`)
		authorities = "KUBECONFIG=/root/old.conf ctl config set-cluster keelson --embed-certs=false " +
			"--certificate-authority=/etc/kubernetes/pki/ca.crt"
	}
	release := releaseDir(t)
	c := &pkiCell{cell: newCell(t, name)}
	c.noStrays()
	c.first, c.worker = c.machine("m1", release), c.machine("m2", release)
	join := c.initialize(c.first, flags)
	c.join(c.worker, join)
	for _, f := range []struct{ name, content string }{{"client.yaml", manifest}, {"loop.sh", loopScript}} {
		c.write(c.first, "/root/"+f.name, f.content)
	}
	c.run(c.first, `
		ctl apply -f /root/client.yaml
		ctl wait --for=condition=Ready pod/client --timeout=60s
		ctl wait --for=condition=Ready nodes --all --timeout=60s
		ctl create deployment web --image=nginx --replicas=0
		ctl patch deployment web --patch '{"spec": {"template": {"spec": {"containers": [
			{"name": "nginx", "imagePullPolicy": "Never"}], "nodeName": "m2"}}}}'
		ctl scale deployment web --replicas=1
		ctl rollout status deployment/web --timeout=60s
		TOKEN=$(ctl create token client --duration=24h)
		cp /etc/kubernetes/admin.conf /root/old.conf
		KUBECONFIG=/root/old.conf ctl config set-credentials loop --token="$TOKEN"
		KUBECONFIG=/root/old.conf ctl config set-context --current --user=loop
		`+authorities+`
		mkdir /root/old
		cp /etc/kubernetes/pki/controller-manager-client.* /root/old
		systemd-run --quiet --unit=loop sh /root/loop.sh`)
	c.before = c.processes()
	return c
}

// processes returns the processes of both machines and when containers started. Finished pods do not
// count.
func (c *pkiCell) processes() string {
	c.Helper()
	var all []string
	for _, m := range []*lab.Machine{c.first, c.worker} {
		all = append(all, m.Name(), c.run(m, "systemctl show --property=Id,MainPID,NRestarts 'keelson-*.service'"))
	}
	return strings.Join(append(all, c.run(c.first, `ctl get pods --all-namespaces --output=jsonpath=`+
		`'{range .items[*]}{.metadata.name} {.status.containerStatuses[*].state.running.startedAt} `+
		`{.status.containerStatuses[*].restartCount}{"\n"}{end}'`)), "\n")
}

// unnoticed checks that no client was refused, and that no process or container was restarted.
func (c *pkiCell) unnoticed(when string) {
	c.Helper()
	if failed := c.run(c.first, "cat /root/failed"); failed != "" {
		c.Errorf("%s: requests with an old kubeconfig failed:\n%s", when, failed)
	}
	if failed := c.run(c.first, "ctl logs client --container=loop"); failed != "" {
		c.Errorf("%s: requests of a pod failed:\n%s", when, failed)
	}
	if got := c.processes(); got != c.before {
		c.Errorf("%s: processes:\n%s\nbefore:\n%s", when, got, c.before)
	}
	// The API server connects to both kubelets.
	c.run(c.first, `ctl exec deployment/web -- true && ctl get --raw /api/v1/nodes/m1/proxy/healthz &&
		ctl get --raw /api/v1/nodes/m2/proxy/healthz`)
}

// list lists the certificates of both machines, and checks that the authority with the given name signs.
func (c *pkiCell) list(authority string) {
	c.Helper()
	for _, m := range []*lab.Machine{c.first, c.worker} {
		out := c.run(m, "ctl certs list || true")
		c.Logf("%s\n%s", m.Name(), out)
		for _, line := range strings.Split(out, "\n")[1:] {
			if !strings.Contains(line, "good") || strings.Contains(line, "CN=system:node") &&
				!strings.Contains(line, authority) && !strings.Contains(line, "kubelet-ca") {
				c.Errorf("%s: %s", m.Name(), line)
			}
		}
	}
}

// rotate replaces the authorities.
func (c *pkiCell) rotate() {
	c.Helper()
	began := time.Now()
	c.Logf("%s\nrotate-ca: %.0f s", c.run(c.first, "ctl certs rotate-ca --timeout=2m"), time.Since(began).Seconds())
}

// TestCertificates renews the certificates of a cluster, and replaces its authorities twice. No client is
// refused, and nothing is restarted.
func TestCertificates(t *testing.T) {
	c := newPKICell(t, "certificates", false, "")
	c.list("kubernetes")
	for _, m := range []*lab.Machine{c.first, c.worker} {
		c.run(m, `
			before=$(cat /etc/kubernetes/pki/apiserver.crt /var/lib/kubelet/pki/*-current.pem /var/lib/kube-proxy/*-current.pem || true)
			ctl certs renew
			test "$before" != "$(cat /etc/kubernetes/pki/apiserver.crt /var/lib/kubelet/pki/*-current.pem /var/lib/kube-proxy/*-current.pem || true)"`)
	}
	c.list("kubernetes")
	c.unnoticed("after renewal")

	c.run(c.first, "timeout -s KILL 20 ctl certs rotate-ca || true") // interrupted
	c.rotate()
	c.list("kubernetes-2")
	c.unnoticed("after the first rotation")
	c.refusesOld()
	c.rotate()
	c.list("kubernetes-3")
	c.unnoticed("after the second rotation")
	if out := c.run(c.worker, "ctl certs rotate-ca 2>&1 || true"); !strings.Contains(out, "has no control plane") {
		t.Errorf("rotation on a worker: %s", out)
	}
	// Each program still works after a restart.
	c.run(c.first, `systemctl restart keelson-apiserver keelson-controller-manager keelson-scheduler keelson-kubelet \
			keelson-agent keelson-proxy
		until ctl get --raw /readyz >/dev/null 2>&1; do sleep 0.1; done
		ctl wait --for=condition=Ready nodes --all --timeout=60s
		ctl delete pod --selector=app=web --wait=false
		ctl rollout status deployment/web --timeout=60s`)
}

// refusesOld checks that certificates of the first authority are refused.
func (c *pkiCell) refusesOld() {
	c.Helper()
	out := c.run(c.first, `ctl --kubeconfig=/dev/null --server=https://127.0.0.1:7443 \
		--certificate-authority=/etc/kubernetes/pki/ca.crt --client-certificate=/root/old/controller-manager-client.crt \
		--client-key=/root/old/controller-manager-client.key get nodes 2>&1 && exit 1 || true`)
	if !strings.Contains(out, "Unauthorized") && !strings.Contains(out, "logged in") {
		c.Errorf("a client with a certificate of the old authority: %s", out)
	}
}

// TestCertificatesExpire lets certificates and authorities live for minutes. It replaces the authorities ten
// times, and until the first ones have expired. No client is refused, and nothing is restarted.
func TestCertificatesExpire(t *testing.T) {
	const (
		authorityLife = 8 * time.Minute
		generations   = 10
	)
	began := time.Now()
	c := newPKICell(t, "expire", true, "--certificate-validity-period=3m --ca-certificate-validity-period="+
		authorityLife.String())
	for i := 1; i <= generations || time.Since(began) < authorityLife+time.Minute; i++ {
		c.rotate()
		c.unnoticed(fmt.Sprintf("after rotation %d, %s", i, time.Since(began).Round(time.Second)))
	}
	for _, m := range []*lab.Machine{c.first, c.worker} {
		if out := c.run(m, "ctl certs list || true"); strings.Contains(out, "expired") || strings.Contains(out, "unknown") {
			t.Errorf("%s:\n%s", m.Name(), out)
		}
	}
}
