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
	"k8s.io/client-go/util/cert"

	kvetcd "keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/backup"
	"keelson.dev/keelson/pkg/backup/offline"
	"keelson.dev/keelson/pkg/epoch"
	"keelson.dev/keelson/pkg/filelock"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/pki"
	"keelson.dev/keelson/pkg/provision"
	"keelson.dev/keelson/pkg/restorehold/mark"
)

// RestoreOptions say where the state of a cluster comes from: File or DataDir.
type RestoreOptions struct {
	// File is the path of a backup in a directory or a bucket, and With has the identities that can open it.
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
  - Other control planes of the cluster stop as soon as they reach a machine of the restored one. They keep
    their old stores in /var/lib/etcd/before-restore-elsewhere-EPOCH, the last two of them, and join by
    themselves.
`

var (
	errOtherNode = errors.New("this machine belongs to a cluster as another node than in the backup: run " +
		"\"ctl reset\" first")
	errNoAddress = errors.New("this machine does not have this address, at which other machines reach the restored " +
		"API server")
	errAdoptedBackup = errors.New("the backup is of a control plane that was adopted from kubeadm, which \"ctl " +
		"restore\" cannot make: take the files out of the archive, and restore " + backup.StoreName + " with etcdutl")
	errOtherCluster = errors.New("the authorities in /etc/kubernetes/pki/ca.crt do not trust that of the backup: " +
		"machines that trust only these could not connect; run \"ctl reset\" first to restore that of the backup, too")
)

// restore has the state of a restore.
type restore struct {
	*steps
	config   *config.KeelsonConfiguration
	files    []backup.File // files to write
	known    int64         // the highest epoch that is known
	several  bool          // the cluster can have several control planes, so etcd is a unit of its own
	revision int64         // of the restored store
	epoch    int64
	stamp    string // name of the directories with what was replaced
}

// Files and directories of a restore, next to the store.
var (
	restoringSource = filepath.Join(storeDir, "restoring.db")
	restoringStore  = filepath.Join(storeDir, "restoring")
)

// controlFlags returns the names of the files with the flags of a control plane's programs.
func controlFlags() (out []string) {
	for _, p := range controlPrograms() {
		out = append(out, filepath.Base(argsFile(p)))
	}
	return out
}

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
	if err := NotAdopted(); err != nil {
		return err
	}
	return undisturbed(func() error { return restoreTo(ctx, o, d) })
}

// restoreTo is Restore after the checks whether other work runs.
func restoreTo(ctx context.Context, o *RestoreOptions, d Deps) error {
	dir, err := release()
	if err != nil {
		return err
	}
	r := &restore{steps: &steps{Deps: d}, stamp: oldPrefix + d.Clock.Now().UTC().Format(stampLayout)}
	of, err := r.prepare(ctx, o)
	if err != nil {
		return errors.Join(err, clearRestoring(), resume(ctx, hasFlags))
	}
	if err := r.run("files", func() error { return r.replace(ctx) }); err != nil {
		return unfinished(err, o.DataDir, storeDir, r.stamp)
	}
	err = r.run("certificates and configuration", func() error {
		p := controlPlane(r.config, of)
		if r.several {
			useEtcd(p, r.config)
			if err := writeArgs(etcd, onlyMember(r.config).Args()); err != nil {
				return err
			}
		}
		return writeControlPlane(ctx, dir, r.config, p, nil, d.Clock, apiAddress(r.config))
	})
	if err != nil {
		return unfinished(err, o.DataDir, storeDir, r.stamp)
	}
	return r.start(ctx)
}

// unfinished adds the remedy to the error of a restore that has begun to replace files. source is the data directory
// that it restores, or empty. If that is store, the directory of this machine's etcd, its data may be in the directory
// stamp below it.
func unfinished(err error, source, store, stamp string) error {
	remedy := "run the command again"
	if moved := filepath.Join(store, stamp); source != "" && filepath.Clean(source) == store &&
		exists(filepath.Join(moved, storeData)) {
		remedy = "run \"ctl restore --from-data-dir " + moved + "\""
	}
	return fmt.Errorf("%w\nThe control plane of this machine stands still. When the cause is removed, %s", err, remedy)
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
		seen, _ := epochFile.Read()
		r.epoch = epoch.Next(r.Clock.Now(), r.known, seen)
		store := offline.Options{Prefix: storePrefix, Epoch: r.epoch}
		if r.several {
			store.Name, store.Peer = r.config.Node.Name, peerURL(r.config)
		}
		r.revision, err = offline.Restore(ctx, restoringSource, restoringStore, store)
		if err != nil {
			return err
		}
		return r.mark(ctx, o.AlsoNodes)
	})
}

// mark marks the nodes and the pods of StatefulSets in the restored store (see package restorehold).
func (r *restore) mark(ctx context.Context, alsoNodes []string) error {
	store, err := embedded.Start(ctx, kvetcd.Embedded{Dir: restoringStore, Clock: r.Clock, Log: r.Log})
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
	a, err := readArchive(ctx, o.File, o.With, source)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(a.files, func(f backup.File) bool { return adoption.Has("/" + f.Name) }) {
		return fmt.Errorf("%s: %w", o.File, errAdoptedBackup)
	}
	if _, err := backup.Inspect(ctx, restoringSource, encryptionKeys(a.files)); err != nil {
		return fmt.Errorf("%s: %w", o.File, err)
	}
	r.config, r.known = a.config, a.Epoch
	// If only this machine has the certificates, other control planes have joined after the backup.
	r.several = slices.ContainsFunc(a.files, func(f backup.File) bool { return "/"+f.Name == etcdCredentials() }) ||
		exists(etcdCredentials()) && canSeparate(r.config) == nil
	// The flags come from the configuration. Those in the backup are for the administrator.
	r.files = slices.DeleteFunc(a.files, func(f backup.File) bool {
		return strings.HasPrefix("/"+f.Name, ownConfig+"/") || "/"+f.Name == provision.KubeletKubeconfig
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
	if err := r.stopControlPlane(ctx); err != nil { // the member may be this machine's
		return err
	}
	if err := offline.Survivor(ctx, dir, restoringSource); err != nil {
		return err
	}
	c, err := backup.Inspect(ctx, restoringSource, encryptionKeys(files))
	if err != nil {
		return err
	}
	r.known, r.several = c.Epoch, exists(etcdCredentials())
	return nil
}

// stopControlPlane stops the control plane of this machine, and what could start it again.
func (r *restore) stopControlPlane(ctx context.Context) error {
	if err := stopAgent(ctx); err != nil {
		return err
	}
	return endControlPrograms(ctx, r.Clock) // without a quorum, an API server takes a minute
}

// resume starts the programs again that stopControlPlane has stopped, also if ctx has ended because the user has
// interrupted the command. isInstalled reports whether the machine has a program.
func resume(ctx context.Context, isInstalled func(program string) bool) error {
	var stopped []string
	for _, p := range append(controlPrograms(), agentName) {
		if isInstalled(p) {
			stopped = append(stopped, unit(p))
		}
	}
	if len(stopped) == 0 {
		return nil
	}
	return queueStart(context.WithoutCancel(ctx), stopped...)
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
	if err := r.stopControlPlane(ctx); err != nil {
		return err
	}
	if err := rejoinJournal.Remove(); err != nil { // the machine joins no other cluster any more
		return err
	}
	// First, so that Reset recognizes the machine, and a repeated restore accepts it.
	if err := keepAside(ownConfig, r.stamp, []string{filepath.Base(configFile)}); err != nil {
		return err
	}
	if err := writeConfiguration(r.config); err != nil {
		return err
	}
	if err := keepFlags(ownConfig, r.stamp); err != nil {
		return err
	}
	if err := moveAside(storeDir, r.stamp, []string{storeData}); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(restoringStore, storeData), filepath.Join(storeDir, storeData)); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := atomicfile.SyncDir(storeDir); err != nil {
		return err
	}
	err := filelock.While(certificatesLock, func() error {
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
	// From here on, this machine has the restored store. Before, it had no flags, so the agent does not make it
	// join another one.
	return errors.Join(storeEpoch.Write(r.epoch), epochFile.Write(r.epoch), clearRestoring())
}

// keepFlags moves the flags of the control plane's programs from dir into the directory stamp below it, and keeps there
// those of the machine's other programs, which are replaced later: an administrator may have edited them.
func keepFlags(dir, stamp string) error {
	var others []string
	for _, p := range programs() {
		if !slices.Contains(controlPrograms(), p) {
			others = append(others, filepath.Base(argsFile(p)))
		}
	}
	if err := keepAside(dir, stamp, others); err != nil {
		return err
	}
	return moveAside(dir, stamp, controlFlags())
}

// place writes a file of the backup, and keeps an old file with another content. At a place that other programs may
// use, it does not replace the old file.
func (r *restore) place(f backup.File) error {
	path := "/" + f.Name
	below, own := strings.CutPrefix(path, string(controlDir)+"/")
	if !own && exists(path) {
		return nil
	}
	if data, err := os.ReadFile(path); err == nil && bytes.Equal(data, f.Data) {
		return os.Chmod(path, f.Mode)
	}
	if own {
		if err := keepAside(string(controlDir), r.stamp, []string{below}); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	return atomicfile.WriteDurably(path, f.Data, f.Mode)
}

// stampLayout is the form of the time in the names of directories with what a command has replaced.
const stampLayout = "20060102T150405Z"

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

// keepAside is moveAside for files that are replaced next. They are never missing, so that an interrupted
// command can be repeated.
func keepAside(dir, stamp string, names []string) error {
	for _, name := range names {
		if err := aside(dir, stamp, name, os.Link); err != nil {
			return err
		}
	}
	return nil
}

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
