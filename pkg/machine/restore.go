// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	kvetcd "keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/backup"
	"keelson.dev/keelson/pkg/backup/offline"
	"keelson.dev/keelson/pkg/epoch"
	"keelson.dev/keelson/pkg/machine/agent"
	"keelson.dev/keelson/pkg/machine/certs"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/pki"
	"keelson.dev/keelson/pkg/provision"
	"keelson.dev/keelson/pkg/restorehold"
	"keelson.dev/keelson/pkg/restorehold/mark"
)

// RestoreOptions say where the state of a cluster comes from: File or DataDir.
type RestoreOptions struct {
	// File is a backup, and With has the identities that can open it.
	File string
	With []age.Identity
	// DataDir is the data directory of an etcd member of this machine's cluster, usually the machine's
	// own, after the other members were lost. All files come from this machine.
	DataDir string
	// AlsoNodes are the names of machines that may have joined after the backup. Pods of StatefulSets wait
	// for them, too.
	AlsoNodes []string
	// Check checks whether the machine is suitable for the configuration in the backup.
	Check func(ctx context.Context, c *config.KeelsonConfiguration) error
}

// RestoreWarning says what Restore changes, for the question before it.
const RestoreWarning = `This brings the cluster back to the state of the backup, with this machine as its only control plane:
  - The cluster forgets everything that has changed since. Pods that the backup does not have end, on all
    machines.
  - This machine's store and the files of its control plane are replaced. The old ones are kept in
    directories "before-restore-TIME" below /var/lib/etcd, /etc/kubernetes and /etc/keelson.
  - Pods of StatefulSets wait until all nodes in the backup have reported. Name the nodes that joined
    after it with --also-nodes.
  - Other control planes of the cluster are not used any more. Run "ctl reset" there.
`

var (
	errOtherNode = errors.New("this machine belongs to a cluster as another node than in the backup: run " +
		"\"ctl reset\" first")
	errNoAddress = errors.New("this machine does not have this address, at which other machines reach the restored " +
		"API server")
	errOtherCluster = errors.New("the authorities in /etc/kubernetes/pki/ca.crt do not trust that of the backup: " +
		"machines that trust only these could not connect; run \"ctl reset\" first to restore that of the backup, too")
)

// restore has the state of a restore.
type restore struct {
	*steps
	config   *config.KeelsonConfiguration
	files    []backup.File // files to write
	known    int64         // the highest epoch that is known
	revision int64         // of the restored store
	epoch    int64
	stamp    string // name of the directories with what was replaced
}

// Files and directories of a restore, next to the store.
var (
	restoringSource = filepath.Join(storeDir, "restoring.db")
	restoringStore  = filepath.Join(storeDir, "restoring")
)

// controlPrograms returns the programs of a control plane, in the order in which they are stopped.
func controlPrograms() []string {
	return []string{provision.Scheduler, provision.ControllerManager, provision.APIServer, etcd}
}

// Restore makes this machine the only control plane of a cluster, with the state of a backup or of an
// etcd member. It returns when the API server and the machine's node are ready. Until it has read
// everything, it changes nothing. It can be interrupted and repeated: what was moved aside remains, and no
// API server starts with half of the files, because the flags of the control plane's programs are removed
// first and written last.
func Restore(ctx context.Context, o *RestoreOptions, d Deps) error {
	dir, err := release()
	if err != nil {
		return err
	}
	if err := notSwitching(); err != nil {
		return err
	}
	r := &restore{steps: &steps{Deps: d}, stamp: oldPrefix + d.Clock.Now().UTC().Format("20060102T150405Z")}
	of, err := r.prepare(ctx, o)
	if err != nil {
		return errors.Join(err, clearRestoring(), resume(ctx))
	}
	if err := r.run("files", func() error { return r.replace(ctx) }); err != nil {
		return err
	}
	err = r.run("certificates and configuration", func() error {
		return writeControlPlane(ctx, dir, r.config, controlPlane(r.config, of), nil, d.Clock, apiAddress(r.config))
	})
	if err != nil {
		return err
	}
	return r.start(ctx)
}

// prepare reads the source of the restore, and makes the new store in restoringStore.
func (r *restore) prepare(ctx context.Context, o *RestoreOptions) (*provision.Cluster, error) {
	if err := r.run("read the backup", func() error { return r.read(ctx, o) }); err != nil {
		return nil, err
	}
	of, err := cluster(r.config)
	if err != nil {
		return nil, err
	}
	return of, r.run("store", func() (err error) {
		r.epoch = epoch.Next(r.Clock.Now(), r.known, agent.ReadEpoch(epochFile))
		r.revision, err = offline.Restore(ctx, restoringSource, restoringStore,
			offline.Options{Prefix: storePrefix, Epoch: r.epoch})
		if err != nil {
			return err
		}
		return r.mark(ctx, o.AlsoNodes)
	})
}

// mark marks the nodes and the pods of StatefulSets in the restored store (see package restorehold).
func (r *restore) mark(ctx context.Context, alsoNodes []string) error {
	store, err := kvetcd.Start(ctx, kvetcd.Embedded{Dir: restoringStore, Clock: r.Clock, Log: r.Log})
	if err != nil {
		return err
	}
	err = mark.Run(ctx, store, mark.Options{Prefix: storePrefix, Epoch: r.epoch, AlsoNodes: alsoNodes, Now: r.Clock.Now()})
	return errors.Join(err, store.Close())
}

// read reads the source of the restore, and checks that it fits this machine. The snapshot of the store is
// in restoringSource then.
func (r *restore) read(ctx context.Context, o *RestoreOptions) (err error) {
	if err := clearRestoring(); err != nil {
		return err
	}
	if err := os.MkdirAll(storeDir, 0o700); err != nil {
		return fmt.Errorf("directory of the store: %w", err)
	}
	if o.DataDir != "" {
		return r.readMember(ctx, o.DataDir)
	}
	source, err := os.OpenFile(restoringSource, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	a, err := readArchive(o.File, o.With, source)
	if err != nil {
		return err
	}
	if _, err := backup.Inspect(ctx, restoringSource, encryptionKeys(a.files)); err != nil {
		return fmt.Errorf("%s: %w", o.File, err)
	}
	r.config, r.known = a.config, a.Epoch
	// The flags come from the configuration. Those in the backup are for the administrator.
	r.files = slices.DeleteFunc(a.files, func(f backup.File) bool {
		return !strings.HasPrefix("/"+f.Name, string(controlDir)+"/") || "/"+f.Name == provision.KubeletKubeconfig
	})
	return errors.Join(fits(r.config, r.files, r.Clock.Now()), o.Check(ctx, r.config))
}

// readMember takes the store from an etcd member's data directory, and everything else from this machine.
func (r *restore) readMember(ctx context.Context, dir string) (err error) {
	if r.config, err = readConfiguration(); err != nil {
		return err
	}
	files, err := backupFiles()
	if err != nil {
		return err
	}
	if err := stopControlPlane(ctx); err != nil { // the member may be this machine's
		return err
	}
	if err := offline.Survivor(ctx, dir, restoringSource); err != nil {
		return err
	}
	c, err := backup.Inspect(ctx, restoringSource, encryptionKeys(files))
	if err != nil {
		return err
	}
	r.known = c.Epoch
	return nil
}

// stopControlPlane stops the control plane of this machine, and what could start it again. It stops nothing
// if the machine switches to another release.
func stopControlPlane(ctx context.Context) error {
	if err := notSwitching(); err != nil {
		return err
	}
	if err := stopSwitcher(ctx); err != nil {
		return err
	}
	if err := notSwitching(); err != nil { // the switch has begun meanwhile; the agent continues it
		return errors.Join(err, systemctl(ctx, "start", unit(agentName)))
	}
	return stopUnits(ctx, units(controlPrograms())...)
}

// resume starts the programs again that stopControlPlane has stopped.
func resume(ctx context.Context) error {
	var stopped []string
	for _, p := range append(controlPrograms(), agentName) {
		if exists(argsFile(p)) {
			stopped = append(stopped, unit(p))
		}
	}
	if len(stopped) == 0 {
		return nil
	}
	return systemctl(ctx, append([]string{"start"}, stopped...)...)
}

// fits checks that this machine can become the control plane with the configuration c and the given files:
// it has the address that other machines know, and does not belong to another cluster.
func fits(c *config.KeelsonConfiguration, files []backup.File, now time.Time) error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("addresses: %w", err)
	}
	want := net.ParseIP(c.APIServer.AdvertiseAddress)
	if !slices.ContainsFunc(own, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(want)
	}) {
		return fmt.Errorf("%s: %w", c.APIServer.AdvertiseAddress, errNoAddress)
	}
	present, err := readConfiguration()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err == nil && present.Node.Name != c.Node.Name {
		return fmt.Errorf("%s: %w", present.Node.Name, errOtherNode)
	}
	return sameCluster(files, controlDir.PKI("ca.crt"), now)
}

// sameCluster returns an error if clients that trust only the authorities in the file own would refuse the
// API server of a restored control plane with the given files. The file need not exist. During a rotation
// and after it, the backup may have other authorities than the machine, and clients still connect.
func sameCluster(files []backup.File, own string, now time.Time) error {
	trusted, err := pki.ReadCertificates(own)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	signer, err := authorityIn(files)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(trusted, signer.Cert.Equal) && !vouched(signer, trusted, now) {
		return errOtherCluster
	}
	return nil
}

// authorityIn returns the authority that signs the certificate of the API server in a backup.
func authorityIn(files []backup.File) (*pki.Authority, error) {
	data := map[string][]byte{}
	for _, f := range files {
		data["/"+f.Name] = f.Data
	}
	bundle, err := cert.ParseCertsPEM(data[controlDir.PKI("ca.crt")])
	if err != nil {
		return nil, fmt.Errorf("authority of the backup: %w", err)
	}
	cross, _ := cert.ParseCertsPEM(data[controlDir.PKI("ca-cross.crt")]) // exists only after a rotation
	return pki.NewAuthority(bundle, cross, data[controlDir.PKI("ca.key")])
}

// vouched reports whether an authority has a cross certificate for which one of the trusted ones vouches.
func vouched(a *pki.Authority, trusted []*x509.Certificate, now time.Time) bool {
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range trusted {
		roots.AddCert(c)
	}
	for _, c := range a.AllCross() {
		others.AddCert(c)
	}
	return slices.ContainsFunc(a.AllCross(), func(c *x509.Certificate) bool {
		_, err := c.Verify(x509.VerifyOptions{Roots: roots, Intermediates: others, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err == nil && bytes.Equal(c.RawSubjectPublicKeyInfo, a.Cert.RawSubjectPublicKeyInfo)
	})
}

// clearRestoring removes what an interrupted restore has left, and the store's directory if it is empty.
func clearRestoring() error {
	for _, path := range []string{
		restoringStore, restoringStore + ".source", restoringSource, restoringSource + ".member",
	} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("interrupted restore: %w", err)
		}
	}
	return removeEmpty(storeDir)
}

// replace stops the control plane, moves its files aside, and writes those of the backup. What the backup
// does not have, such as the kubelet's credentials, remains.
func (r *restore) replace(ctx context.Context) error {
	if err := stopControlPlane(ctx); err != nil {
		return err
	}
	// First, so that Reset recognizes the machine, and a repeated restore accepts it.
	if err := keepAside(ownConfig, r.stamp, filepath.Base(configFile)); err != nil {
		return err
	}
	if err := writeConfiguration(r.config); err != nil {
		return err
	}
	var flags []string
	for _, p := range controlPrograms() {
		flags = append(flags, filepath.Base(argsFile(p)))
	}
	if err := moveAside(ownConfig, r.stamp, flags); err != nil {
		return err
	}
	if err := moveAside(storeDir, r.stamp, []string{"member"}); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(restoringStore, "member"), filepath.Join(storeDir, "member")); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := atomicfile.SyncDir(storeDir); err != nil {
		return err
	}
	err := certs.Locked(certificatesLock, func() error {
		for _, f := range r.files {
			if err := r.place(f); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(agent.WriteEpoch(epochFile, r.epoch), clearRestoring())
}

// place writes a file of the backup, and keeps an old file with another content.
func (r *restore) place(f backup.File) error {
	path := "/" + f.Name
	if data, err := os.ReadFile(path); err == nil && bytes.Equal(data, f.Data) {
		return os.Chmod(path, f.Mode)
	}
	below := strings.TrimPrefix(path, string(controlDir)+"/")
	if err := keepAside(string(controlDir), r.stamp, below); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	return atomicfile.WriteDurably(path, f.Data, f.Mode)
}

// moveAside moves those of the named entries of dir that exist into the directory stamp below dir. It returns
// when that is on the disk.
func moveAside(dir, stamp string, names []string) error {
	for _, name := range names {
		if err := aside(dir, stamp, name, os.Rename); err != nil {
			return err
		}
	}
	return nil
}

// keepAside is moveAside for a file that is replaced next. It is never missing, so that an interrupted
// restore can be repeated.
func keepAside(dir, stamp, name string) error { return aside(dir, stamp, name, os.Link) }

func aside(dir, stamp, name string, put func(from, to string) error) error {
	from, to := filepath.Join(dir, name), filepath.Join(dir, stamp, name)
	if !exists(from) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fmt.Errorf("old files: %w", err)
	}
	if err := put(from, to); err != nil {
		return fmt.Errorf("old files: %w", err)
	}
	return errors.Join(atomicfile.SyncDir(filepath.Dir(to)), atomicfile.SyncDir(filepath.Dir(from)))
}

// start starts the programs of the machine, and waits until its node is ready.
func (r *restore) start(ctx context.Context) error {
	if err := r.run("containerd", func() error { return startUnits(ctx, containerd) }); err != nil {
		return err
	}
	api, err := r.startControlPlane(ctx)
	if err != nil {
		return err
	}
	name := r.config.Node.Name
	err = r.run("node "+name, func() error {
		if err := api.createNode(ctx, r.config); err != nil {
			return err
		}
		return r.startNode(ctx, func(ctx context.Context) error { return nodeReady(ctx, api.client, name) })
	})
	if err != nil {
		return err
	}
	waiting := r.awaitReports(ctx, api.client)
	fmt.Fprintf(r.Out, "\nThe cluster %s is restored, with the epoch %d and the revision %d.\n"+
		"Other machines connect by themselves; see \"ctl get nodes\".\n", r.config.ClusterName, r.epoch, r.revision)
	if waiting != nil {
		fmt.Fprintf(r.Out, "\nPods of StatefulSets wait: %s.\n"+
			"If the machine of such a node is off and stays off: ctl node fence NAME\n\n", waiting)
	}
	for _, dir := range []string{storeDir, string(controlDir), ownConfig} {
		if old := filepath.Join(dir, r.stamp); exists(old) {
			fmt.Fprintln(r.Out, "The old files are in "+old+".")
		}
	}
	return nil
}

// reportTimeout is how long Restore waits for the reports of nodes. Machines that are on need some seconds.
const reportTimeout = 30 * time.Second

// awaitReports waits until the cluster waits for no node. Otherwise, it returns for which nodes the
// cluster waits, or why that is unknown. Nothing depends on it, because the state is in the objects.
func (r *restore) awaitReports(ctx context.Context, client kubernetes.Interface) error {
	return provision.Wait(ctx, r.Clock, reportTimeout, func(ctx context.Context) error {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: restorehold.Unreported})
		if err != nil {
			return err
		}
		var waiting []string
		for i := range list.Items {
			if restorehold.Waiting(&list.Items[i]) {
				waiting = append(waiting, list.Items[i].Name)
			}
		}
		if len(waiting) > 0 {
			return fmt.Errorf("%w: %s", errUnreported, strings.Join(waiting, ", "))
		}
		return nil
	})
}

var errUnreported = errors.New("these nodes have not reported yet")
