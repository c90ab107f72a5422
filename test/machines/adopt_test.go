// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	_ "embed"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson.dev/keelson/test/machines/lab"
)

// kubeadmScript makes a cluster with kubeadm, and kubeadmConfig is its configuration.
var (
	//go:embed testdata/kubeadm.sh
	kubeadmScript string
	//go:embed testdata/kubeadm.yaml
	kubeadmConfig string
	// adoptManifest has objects that must remain during an adoption.
	//
	//go:embed testdata/adopt.yaml
	adoptManifest string
)

// kubeadm makes a cluster with kubeadm and Kubernetes' kubelet on a machine. kubernetes is the directory with
// the programs and images that test/conformance/stores.sh has built.
func (c *cell) kubeadm(m *lab.Machine, kubernetes string) {
	c.Helper()
	images, err := filepath.Glob(filepath.Join(kubernetes, "images", "*.tar"))
	if err != nil || len(images) == 0 {
		c.Fatal("no images of Kubernetes", err)
	}
	for _, image := range []string{"pause", "nginx", "busybox"} {
		images = append(images, "../../.build/images/"+image+".tar")
	}
	for _, program := range []string{"kubeadm", "kubelet"} {
		if err := m.CopyIn(filepath.Join(kubernetes, program), "/root/kubernetes/"+program); err != nil {
			c.Fatal(err)
		}
	}
	for _, image := range images {
		if err := m.CopyIn(image, "/root/kubernetes/images/"+filepath.Base(image)); err != nil {
			c.Fatal(err)
		}
	}
	c.write(m, "/root/kubeadm.yaml", kubeadmConfig)
	c.write(m, "/root/kubeadm.sh", kubeadmScript)
	c.timed(m, "kubeadm init", "RELEASE=/usr/lib/keelson/"+version+" sh -eu /root/kubeadm.sh")
	c.run(m, "cp /etc/kubernetes/admin.conf /root/admin.conf; ctl wait --for=condition=Ready node/m1 --timeout=60s")
}

// configuration prints what an adoption changes on a machine: names and checksums of files, and units.
const configuration = `find /etc/kubernetes /etc/keelson /etc/systemd /usr/lib/keelson/current /var/lib/keelson 2>/dev/null |
	sort | while read -r f; do if [ -f "$f" ]; then sha256sum "$f"; else echo "$f"; fi; done
	systemctl list-units --all --plain --no-legend 'keelson*'`

// workload returns the processes of the containers of pods that are not static, by container ID.
func (c *cell) workload(m *lab.Machine) map[string]string {
	c.Helper()
	out := map[string]string{}
	tasks := c.tasks(m)
	for id := range strings.FieldsSeq(c.run(m, `ctl get pods --namespace=default \
		--output=jsonpath='{.items[*].status.containerStatuses[*].containerID}'`)) {
		id = strings.TrimPrefix(id, "containerd://")
		out[id] = tasks[id]
	}
	return out
}

// refused checks that a command fails with a text, and that it changes nothing.
func (c *cell) refused(m *lab.Machine, command, want string) {
	c.Helper()
	before := c.run(m, configuration)
	if out := c.run(m, "if { "+command+"; } 2>&1; then exit 1; fi"); !strings.Contains(out, want) {
		c.Errorf("%s: %s\nwant %q", command, out, want)
	}
	if after := c.run(m, configuration); after != before {
		c.Errorf("%s has changed the machine:\n%s\nbefore:\n%s", command, after, before)
	}
}

// kept checks that what was made under the other control plane is there and works: objects, the token of a
// ServiceAccount, and the containers of pods, which have not been restarted.
func (c *cell) kept(m *lab.Machine, token string, workload map[string]string) {
	c.Helper()
	if text := c.run(m, `ctl get configmap/old secret/old widget/old \
		--output=jsonpath='{.items[0].data.text} {.items[1].data.text} {.items[2].spec.text}'`); text != "kept a2VwdA== kept" {
		c.Errorf("objects have %q", text)
	}
	if user := c.run(m, "ctl --kubeconfig=/dev/null --server=https://10.60.0.11:6443 --token="+token+
		" --certificate-authority=/etc/kubernetes/pki/ca.crt auth whoami --output=jsonpath='{.status.userInfo.username}'",
	); user != "system:serviceaccount:default:default" {
		c.Errorf("the token is of %q", user)
	}
	if now := c.workload(m); !maps.Equal(now, workload) {
		c.Errorf("containers %v, want %v", now, workload)
	}
}

// TestAdopt adopts the control plane of a cluster that kubeadm has made, with Kubernetes' own kubelet, and returns.
func TestAdopt(t *testing.T) {
	kubernetes := os.Getenv("KEELSON_KUBERNETES")
	if kubernetes == "" {
		t.Skip("KEELSON_KUBERNETES is not set")
	}
	release := releaseDir(t)
	c := newCell(t, "adopt")
	c.noStrays()
	m := c.machine("m1", release)
	c.kubeadm(m, kubernetes)
	c.write(m, "/root/adopt.yaml", adoptManifest)
	c.run(m, `ctl apply -f /root/adopt.yaml --server-side
		ctl wait --for=condition=Established crd/widgets.example.com --timeout=60s
		ctl create -f - <<END
{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "old"}, "spec": {"text": "kept"}}
END
		ctl rollout status deployment/web --timeout=120s`)
	token := c.run(m, "ctl create token default --duration=1h")
	workload := c.workload(m)
	t.Logf("containers %v", workload)

	// A flag that Keelson's controller manager does not know, and a release whose API server does not start.
	c.run(m, `sed -i 's/^    - --allocate-node-cidrs=true/&\n    - --route-reconciliation-period=11s/' \
			/etc/kubernetes/manifests/kube-controller-manager.yaml
		cp -r /usr/lib/keelson/`+version+` /usr/lib/keelson/broken
		cp /bin/true /usr/lib/keelson/broken/bin/apiserver
		until ctl get pods --namespace=kube-system --selector=component=kube-controller-manager \
			--output=jsonpath='{.items[*].spec.containers[0].command}' | grep -q route-reconciliation; do sleep 0.2; done
		ctl wait --namespace=kube-system --for=condition=Ready pod --all --timeout=60s`)
	before := c.run(m, configuration)
	c.refused(m, "ctl adopt", "--route-reconciliation-period=11s of controller-manager: ")
	c.refused(m, "ctl init", "remedy: ")
	adopt := "ctl adopt --drop-flag=route-reconciliation-period"
	c.timed(m, "dry run", adopt+" --dry-run")
	c.refused(m, "/usr/lib/keelson/broken/bin/"+adopt, "apiserver: it ends again and again")
	c.kept(m, token, workload)

	seen := c.writes(m, func() { c.timed(m, "adopt", adopt) })
	t.Logf("adopt: longest time without a write: %.1f s", seen.Gap)
	c.run(m, "ctl version | grep Keelson; ctl get --raw /version")
	c.kept(m, token, workload)
	c.adopted(m, adopt)
	if err := m.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if err := m.PowerOn(c.within()); err != nil {
		t.Fatal(err)
	}
	c.timed(m, "pods after a power failure", webRestarted)
	workload = c.workload(m)

	seen = c.writes(m, func() { c.timed(m, "unadopt", unadoptEdited) })
	t.Logf("unadopt: longest time without a write: %.1f s", seen.Gap)
	c.kept(m, token, workload)
	c.run(m, undoEdit)
	if text := c.run(m, "ctl get configmap new --output=jsonpath='{.data.text}'"); text != "Keelson" {
		t.Errorf("what was written under Keelson has %q", text)
	}
	if out := c.run(m, "ctl unadopt"); !strings.Contains(out, "nothing to do") {
		t.Errorf("unadopt twice: %s", out)
	}
	c.timed(m, "adopt, interrupted", adopt+interrupted)
	c.timed(m, "adopt after an interruption", "ctl adopt; ! grep route-reconciliation-period /etc/keelson/*.env")
	for _, seconds := range []string{"0.5", "2", "6"} {
		c.run(m, "timeout -s KILL "+seconds+" "+adopt+" >/dev/null 2>&1 || true; timeout -s KILL "+seconds+
			" ctl unadopt >/dev/null 2>&1 || true")
	}
	c.timed(m, "unadopt after interruptions", "ctl unadopt")
	c.kept(m, token, workload)
	if after := c.run(m, configuration); after != before {
		t.Errorf("the machine has\n%s\nwant\n%s", after, before)
	}
}

// unadoptEdited returns although a saved manifest has a form that "ctl adopt" refuses, and the credentials of
// administrators are missing. It checks that the edited manifest has come back as it was.
const unadoptEdited = `cd /etc/kubernetes
	sed -i 's/^    - --leader-elect=true/    - --leader-elect/' keelson-adopted/kube-scheduler.yaml
	saved=$(sha256sum <keelson-adopted/kube-scheduler.yaml)
	mkdir /root/kept
	mv admin.conf super-admin.conf /root/kept/
	ctl unadopt
	mv /root/kept/* .
	rmdir /root/kept
	[ "$(sha256sum <manifests/kube-scheduler.yaml)" = "$saved" ]`

// undoEdit undoes the edit of unadoptEdited, and waits until the kubelet has noticed.
const undoEdit = `scheduler() { ctl get pods --namespace=kube-system --selector=component=kube-scheduler "$@"; }
	sed -i 's/^    - --leader-elect$/&=true/' /etc/kubernetes/manifests/kube-scheduler.yaml
	until scheduler --output=jsonpath='{.items[*].spec.containers[0].command}' | grep -q leader-elect=true; do
		sleep 0.2
	done
	ctl wait --namespace=kube-system --for=condition=Ready pod --all --timeout=60s`

// interrupted follows "ctl adopt". It ends the command after the first change, and checks that no other one runs
// meanwhile.
const interrupted = ` >/root/adopt.log 2>&1 &
	while [ ! -e /etc/kubernetes/keelson-adopted/kube-scheduler.yaml ]; do
		kill -0 $! || { cat /root/adopt.log; exit 1; }
		sleep 0.02
	done
	if ctl unadopt >/root/unadopt.log 2>&1; then exit 1; fi
	kill -9 $!
	grep -q 'runs on this machine already' /root/unadopt.log`

// webRestarted waits until the containers of the Deployment web run. After a power failure, their statuses are
// those from before for some time.
const webRestarted = `running() {
		[ "$(echo $1 | wc -w)" = 2 ] || return 1
		for id in $1; do /usr/lib/keelson/` + version + `/tools/ctr -n k8s.io tasks list 2>/dev/null |
			grep -q "${id#containerd://}.*RUNNING" || return 1; done
	}
	until ctl get --raw /readyz >/dev/null 2>&1; do sleep 0.1; done
	for i in $(seq 150); do
		ids=$(ctl get pods --selector=app=web --output=jsonpath='{.items[*].status.containerStatuses[0].containerID}')
		! running "$ids" || exit 0
		sleep 0.5
	done
	ctl get pods --all-namespaces --output=wide
	ctl describe pods
	journalctl --no-pager --unit=kubelet --lines=20
	exit 1`

// adopted checks what works on an adopted machine, and what is refused.
func (c *cell) adopted(m *lab.Machine, adopt string) {
	c.Helper()
	c.refused(m, "ctl reset --force", "ctl unadopt")
	c.refused(m, "ctl init", "ctl unadopt")
	c.refused(m, "ctl token create --control-plane", "ctl unadopt")
	c.refused(m, "ctl certs list", "kubeadm certs")
	c.refused(m, "ctl upgrade plan "+version, "ctl unadopt")
	c.refused(m, "/usr/lib/keelson/broken/bin/"+adopt, "adopted by another release")
	c.timed(m, "adopt again", adopt)
	c.run(m, `ctl create configmap new --from-literal=text=Keelson
		ctl scale deployment/web --replicas=3
		ctl rollout status deployment/web --timeout=120s
		ctl scale deployment/web --replicas=2`)
	c.run(m, writePassphrase)
	file := c.timed(m, "backup", "ctl backup create --dir=/var/backups "+passphrase)
	for _, want := range []string{"Deployment.apps ", "Authorities:", "Widget.example.com", "all can be decrypted",
		"/srv/kubernetes/keys.yaml", "/srv/kubernetes/admission.yaml", "/srv/kubernetes/pod-security.yaml"} {
		if out := c.run(m, "ctl backup verify "+file+" "+passphrase); !strings.Contains(out, want) {
			c.Errorf("the backup does not have %q:\n%s", want, out)
		}
	}
	c.run(m, `cp /root/passphrase /mnt/passphrase
		ctl backup schedule --dir=/mnt/backups --passphrase-file=/mnt/passphrase
		systemctl start keelson-backup`)
}
