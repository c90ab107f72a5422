// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"keelson.dev/keelson/test/machines/lab"
)

// backupManifest has what the tests of backups run.
//
//go:embed testdata/backup.yaml
var backupManifest string

// passphrase writes a file with a passphrase, and is the flag with its name.
const (
	passphrase      = "--passphrase-file=/root/passphrase"
	writePassphrase = "echo 'correct horse battery' > /root/passphrase\n"
)

// timed runs a script, and logs how long it took.
func (c *cell) timed(m *lab.Machine, name, script string) string {
	c.Helper()
	began := time.Now()
	out := c.run(m, script)
	c.Logf("%s: %.1f s\n%s", name, time.Since(began).Seconds(), out)
	return out
}

// tasks returns the process IDs of the containers on a machine, by container ID.
func (c *cell) tasks(m *lab.Machine) map[string]string {
	c.Helper()
	out := map[string]string{}
	list := "/usr/lib/keelson/" + version + "/tools/ctr -n k8s.io tasks list | grep RUNNING"
	for line := range strings.Lines(c.run(m, list)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			out[fields[0]] = fields[1]
		}
	}
	return out
}

// container returns the UID of a pod and the ID of its container.
func (c *cell) container(m *lab.Machine, selector string) (pod, id string) {
	c.Helper()
	out := strings.Fields(c.run(m, "ctl get pods --selector="+selector+
		" --output=jsonpath='{.items[0].metadata.uid} {.items[0].status.containerStatuses[0].containerID}'"))
	if len(out) != 2 {
		c.Fatal(selector, out)
	}
	return out[0], strings.TrimPrefix(out[1], "containerd://")
}

// revision returns the resourceVersion of the cluster.
func (c *cell) revision(m *lab.Machine) int64 {
	c.Helper()
	out, err := strconv.ParseInt(c.run(m, `ctl get --raw '/api/v1/pods?limit=1' |
		sed 's/.*"metadata":{"resourceVersion":"\([0-9]*\)".*/\1/'`), 10, 64)
	if err != nil {
		c.Fatal(err)
	}
	return out
}

// gone waits until a container does not run any more.
func (c *cell) gone(m *lab.Machine, id string) {
	c.Helper()
	c.run(m, "timeout 60 sh -c 'while /usr/lib/keelson/current/tools/ctr -n k8s.io tasks list | grep -q "+id+
		"; do sleep 0.2; done'")
}

// backedUp is a cluster with a backup, after which something was changed.
type backedUp struct {
	*cell
	first, worker *lab.Machine
	file          string
	database      string            // UID of the pod db-0
	kept, lost    [2]string         // a pod in the backup and one that is not: UID and container
	latest        int64             // the resourceVersion of the lost history
	config        string            // a ConfigMap of the lost history
	running       map[string]string // processes of containers
}

// backUp makes a cluster with a backup in a directory or in a bucket.
func backUp(t *testing.T, name, dir string) *backedUp {
	release := releaseDir(t)
	c := newCell(t, name)
	if strings.HasPrefix(dir, "s3:") {
		c.startBucket()
	}
	b := &backedUp{cell: c, first: c.machine("m1", release), worker: c.machine("m2", release)}
	join := c.initialize(b.first, "--register-with-taints=node-role.kubernetes.io/control-plane:NoSchedule")
	c.join(b.worker, join)
	b.write(b.first, "/root/backup.yaml", backupManifest)
	c.run(b.first, writePassphrase+`ctl apply -f /root/backup.yaml
		ctl rollout status deployment/web --timeout=60s
		ctl rollout status statefulset/db --timeout=60s`)
	b.kept[0], b.kept[1] = c.container(b.first, "app=web")
	b.database, _ = c.container(b.first, "app=db")
	b.file = c.timed(b.first, "backup", "ctl backup create --dir="+dir+" "+passphrase)
	contents := c.timed(b.first, "verify", "ctl backup verify "+b.file+" "+passphrase)
	for _, want := range []string{"Deployment.apps ", "StatefulSet.apps ", "all can be decrypted", "kubelet-ca"} {
		if !strings.Contains(contents, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if list := c.run(b.first, "ctl backup list --dir="+dir); !strings.Contains(list, b.file) {
		t.Errorf("list: %s", list)
	}
	// What follows is lost by the restore.
	c.run(b.first, `ctl delete configmap deleted
		ctl patch configmap changed --patch '{"data": {"text": "lost"}}'
		sed -n '/^---/q; s/web/lost/g; p' /root/backup.yaml | ctl apply -f -
		ctl rollout status deployment/lost --timeout=60s
		old=$(ctl get pod db-0 --output=jsonpath='{.metadata.uid}')
		ctl delete pod db-0 --wait=false
		until ctl get pod db-0 --output=jsonpath='{.metadata.uid}' | grep -qv "$old"; do sleep 0.2; done
		ctl wait pod/db-0 --for=condition=Ready --timeout=60s`)
	b.lost[0], b.lost[1] = c.container(b.first, "app=lost")
	b.config = c.run(b.first, "ctl get configmap changed --output=json")
	b.latest = c.revision(b.first)
	b.running = c.tasks(b.worker)
	return b
}

// restored checks that the state of the backup is back.
func (b *backedUp) restored(began time.Time) {
	b.Helper()
	// The worker renews its lease with the restored API server.
	b.run(b.first, fmt.Sprintf(`until [ "$(date -d "$(ctl get lease m2 --namespace=kube-node-lease \
		--output=jsonpath='{.spec.renewTime}')" +%%s)" -gt %d ]; do sleep 0.1; done
		ctl wait --for=condition=Ready nodes --all --timeout=60s`, time.Now().Unix()))
	b.Logf("the worker has renewed its lease %.1f s after the start of the restore", time.Since(began).Seconds())
	text := b.run(b.first, "ctl get configmap deleted changed --output=jsonpath='{.items[*].data.text}'")
	if text != "kept kept" {
		b.Errorf("ConfigMaps have %q", text)
	}
	if secret := b.run(b.first, "ctl get secret secret --output=jsonpath='{.data.text}'"); secret != "a2VwdA==" {
		b.Errorf("the Secret has %q", secret)
	}
	if out := b.run(b.first, "ctl get deployment lost 2>&1 && exit 1 || true"); !strings.Contains(out, "not found") {
		b.Errorf("the lost Deployment: %s", out)
	}
	b.gone(b.worker, b.lost[1])
	b.Logf("the unknown pod has ended %.1f s after the start of the restore", time.Since(began).Seconds())
	b.run(b.first, `ctl wait pod/db-0 --for=condition=Ready --timeout=60s
		ctl rollout status deployment/web --timeout=60s
		ctl rollout status statefulset/db --timeout=60s`)
	// The container of db-0 ended before the restore, so it is started again.
	pod, _ := b.container(b.first, "app=db")
	const runtime = "/usr/lib/keelson/current/tools/ctr -n k8s.io "
	b.run(b.worker, "timeout 60 sh -c 'until "+runtime+"tasks list | grep RUNNING | cut -d \\  -f 1 | "+
		"xargs -I{} "+runtime+"containers info {} | grep -q "+pod+"; do sleep 0.2; done'")
	if pod != b.database {
		b.Errorf("db-0 has the UID %s, want %s", pod, b.database)
	}
	pod, id := b.container(b.first, "app=web")
	if pod != b.kept[0] || id != b.kept[1] || b.tasks(b.worker)[id] != b.running[id] {
		b.Errorf("the pod of the backup is %s with container %s, want %v", pod, id, b.kept)
	}
}

// clients checks what clients with resourceVersions of the lost history get.
func (b *backedUp) clients() {
	b.Helper()
	if now := b.revision(b.first); now <= b.latest {
		b.Errorf("the resourceVersion %d is not greater than %d", now, b.latest)
	}
	watch := b.run(b.first, fmt.Sprintf("ctl get --raw '/api/v1/configmaps?watch=1&resourceVersion=%d'", b.latest))
	if !strings.Contains(watch, `"code":410`) {
		b.Errorf("a watch of the lost history gets %s", watch)
	}
	b.write(b.first, "/root/lost.json", b.config)
	if out := b.run(b.first, "ctl replace -f /root/lost.json 2>&1 && exit 1 || true"); !strings.Contains(out, "Conflict") {
		b.Errorf("a write with a resourceVersion of the lost history gets %s", out)
	}
}

// refusesOldStore gives the API server the store that the last restore has moved aside. The other machines do
// not use it, although no other server works, until the restored store is back.
func (b *backedUp) refusesOldStore() {
	b.Helper()
	const through = "KUBECONFIG=/etc/kubernetes/kubelet.conf ctl get --raw /readyz"
	b.run(b.first, `systemctl stop keelson-apiserver
		mv /var/lib/etcd/member /root/restored
		cp -a /var/lib/etcd/before-restore-*/member /var/lib/etcd/member
		systemctl start keelson-apiserver
		until ctl --server=https://10.60.0.11:6443 get --raw /readyz; do sleep 0.1; done`)
	b.run(b.worker, `timeout 30 sh -c 'until journalctl --unit=keelson-agent | grep "Refused an API server"; do
		sleep 0.1; done'
		! `+through)
	b.run(b.first, `systemctl stop keelson-apiserver
		rm -r /var/lib/etcd/member
		mv /root/restored /var/lib/etcd/member
		systemctl start keelson-apiserver`)
	b.run(b.worker, "timeout 30 sh -c 'until "+through+"; do sleep 0.1; done'")
}

// TestBackup makes a backup of a cluster, changes the cluster, loses the control plane's files, and restores
// the backup, twice.
func TestBackup(t *testing.T) {
	b := backUp(t, "backup", "/var/backups/keelson")
	for _, wrong := range []struct{ name, script, want string }{
		{"wrong passphrase", "echo 'another passphrase' > /tmp/wrong; " +
			"ctl restore --force --passphrase-file=/tmp/wrong " + b.file, "not that of this backup"},
		{"cut off", "head -c 20000 " + b.file + " > /tmp/cut; ctl restore --force " + passphrase + " /tmp/cut", "damaged"},
		{"no file", "ctl restore --force " + passphrase + " /tmp/none", "no such file"},
	} {
		out := b.run(b.first, wrong.script+` 2>&1 && exit 1 || true
			ctl get nodes >/dev/null
			test ! -e /var/lib/etcd/restoring.db`)
		if !strings.Contains(out, wrong.want) {
			t.Errorf("%s: %s", wrong.name, out)
		}
	}
	third := b.machine("m3", releaseDir(t))
	b.join(third, b.run(b.first, "ctl token create --print-join-command"))
	b.run(b.first, "systemctl kill --signal=KILL 'keelson-*'; rm -rf /etc/kubernetes /var/lib/etcd")
	began := time.Now()
	b.timed(b.first, "restore", "ctl restore --force "+passphrase+" "+b.file)
	b.restored(began)
	b.clients()
	b.run(b.first, "ctl wait --for=create node/m3 --timeout=60s") // it has joined after the backup

	t.Log("the same file again, on a control plane that works")
	b.latest = b.revision(b.first)
	began = time.Now()
	b.timed(b.first, "restore", "ctl restore --force "+passphrase+" "+b.file)
	b.restored(began)
	b.clients()
	b.refusesOldStore()
}

// TestRestoreOnNewMachine makes scheduled backups in a directory and in a bucket. It restores a backup from the
// bucket on a machine on which nothing is installed but a release. The restore is interrupted several times. Then
// the state of the store is taken from its data directory.
func TestRestoreOnNewMachine(t *testing.T) {
	b := backUp(t, "restorenew", "s3://backups/by-hand")
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	b.write(b.first, "/root/identity", id.String())
	b.run(b.first, "ctl backup schedule --dir=/srv/backups --every=10m --keep=2 --recipient="+id.Recipient().String()+`
		systemctl start keelson-backup
		systemctl start keelson-backup # the first one is new enough
		systemctl is-active keelson-backup.timer
		test "$(ls /srv/backups | wc -l)" = 1
		ctl backup verify /srv/backups/* --identity-file=/root/identity | grep Deployment
		ctl backup schedule --dir=s3://backups/scheduled --every=10m --recipient=`+id.Recipient().String()+`
		test "$(stat -c '%a %U' /etc/keelson/backup-s3.env)" = '600 root'
		systemctl start keelson-backup
		systemctl start keelson-backup
		file=$(ctl backup list --dir=s3://backups/scheduled | awk 'NR == 2 { print $NF } END { if (NR != 2) exit 1 }')
		ctl backup verify $file --identity-file=/root/identity | grep Deployment
		ctl backup schedule --off
		test ! -e /etc/keelson/backup.env && test ! -e /etc/keelson/backup-s3.env
		! systemctl is-active keelson-backup.timer`)
	if out := b.run(b.first, "systemctl show keelson-backup; journalctl --unit=keelson-backup"); strings.Contains(out,
		bucketSecret) {
		t.Error("the key of the bucket is not secret:", out)
	}
	b.run(b.first, `ctl reset --force
		for seconds in 0.3 1.0 1.2 1.5 2; do
			timeout -s KILL $seconds ctl restore --force `+passphrase+" "+b.file+` >/dev/null || true
		done`)
	began := time.Now()
	b.timed(b.first, "restore", "ctl restore --force "+passphrase+" "+b.file)
	b.restored(began)
	b.clients()

	t.Log("from the data directory")
	b.latest = b.revision(b.first)
	b.run(b.first, "ctl create configmap after; systemctl kill --signal=KILL 'keelson-*'")
	began = time.Now()
	b.timed(b.first, "restore", "ctl restore --force --from-data-dir=/var/lib/etcd")
	b.restored(began)
	b.clients()
	b.run(b.first, "ctl get configmap after")
}
