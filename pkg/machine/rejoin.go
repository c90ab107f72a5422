// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/epoch"
	"keelson.dev/keelson/pkg/machine/agent"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/machine/machines"
	"keelson.dev/keelson/pkg/machine/members"
	"keelson.dev/keelson/pkg/machine/nodes"
	"keelson.dev/keelson/pkg/machine/rejoin"
	"keelson.dev/keelson/pkg/provision"
	"keelson.dev/keelson/pkg/restorehold"
)

const (
	// rejoiner is the name of the unit that makes the control plane join a cluster that was restored on another
	// machine. It is not one of the machine's programs.
	rejoiner = "rejoin"
	// rejoinJournal exists while the control plane has not joined yet.
	rejoinJournal = rejoin.Journal(state + "/rejoin.json")
	// storeEpoch has the epoch of this machine's own store.
	storeEpoch = epoch.File(state + "/store-epoch")
	// elsewhere is the prefix of the names of directories with what a control plane had before its cluster was
	// restored on another machine. The epoch of that restore follows.
	elsewhere = oldPrefix + "elsewhere-"
	// keptAside is how many of these directories are kept, so that they do not fill the disk.
	keptAside = 2
)

// newWatch returns what notices that the store of this machine is older than the cluster.
func newWatch(d Deps) *rejoin.Watch {
	return &rejoin.Watch{
		Server: func() string {
			if c, err := ownConfiguration(); err == nil {
				return apiAddress(c)
			}
			return ""
		},
		Store: storeEpoch, Journal: rejoinJournal, Clock: d.Clock, Log: d.Log, Exclusively: undisturbed,
		Start: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, callLimit) // the checks of API servers wait for it
			defer cancel()
			return queueStart(ctx, unit(rejoiner))
		},
	}
}

// Rejoin makes this machine's control plane join the cluster that was restored on another machine, if the agent
// has noticed that. The unit keelson-rejoin runs it.
func Rejoin(ctx context.Context, d Deps) error {
	c, err := readConfiguration()
	if err != nil {
		return err
	}
	m := &oldControlPlane{steps: &steps{Deps: d}, config: c}
	return rejoin.Run(ctx, rejoinJournal, m, d.Clock, d.Log, func(e *rejoin.Entry, err error) {
		voters := 0
		if e == nil {
			voters = countVoters(ctx)
		}
		c := rejoinCondition(e, err, m.Highest(), voters)
		if e == nil {
			d.Log.Info("Control plane has joined", "state", c.Message)
		}
		m.report(ctx, c)
	})
}

// countVoters returns how many members of the cluster's etcd have a vote, or 0 if this machine's does not answer.
func countVoters(ctx context.Context) int {
	m, err := connectEtcd(localEtcd)
	if err != nil {
		return 0
	}
	defer m.Close() // without a connection, nothing is lost
	list, err := m.List(ctx)
	if err != nil {
		return 0
	}
	return len(members.Voters(list))
}

// oldControlPlane is a control plane with the history of its cluster before a restore.
type oldControlPlane struct {
	*steps
	config *config.KeelsonConfiguration
}

var _ rejoin.Machine = (*oldControlPlane)(nil)

// Highest implements rejoin.Machine.
func (m *oldControlPlane) Highest() int64 {
	highest, _ := epochFile.Read()
	return highest
}

// Stop implements rejoin.Machine. The switcher does not run: as long as the journal exists, no switch begins.
func (m *oldControlPlane) Stop(ctx context.Context, epoch int64) error {
	if err := moveAside(ownConfig, asideOf(epoch), controlFlags()); err != nil {
		return err
	}
	return endControlPrograms(ctx, m.Clock)
}

// SetAside implements rejoin.Machine.
func (m *oldControlPlane) SetAside(_ context.Context, epoch int64, copied bool) error {
	if copied {
		return removeData()
	}
	if err := moveAside(storeDir, asideOf(epoch), []string{storeData}); err != nil {
		return err
	}
	return errors.Join(pruneAside(storeDir), pruneAside(ownConfig))
}

// asideOf returns the name of the directories with what this machine had before a restore elsewhere.
func asideOf(number int64) string { return elsewhere + epoch.Format(number) }

// asides returns the paths of the directories below dir with what this machine had before restores elsewhere, the
// latest last.
func asides(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("old files: %w", err)
	}
	numbers := map[string]int64{}
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), elsewhere)
		if number, err := epoch.Parse(text); ok && err == nil {
			numbers[filepath.Join(dir, e.Name())] = number
		}
	}
	return slices.SortedFunc(maps.Keys(numbers), func(a, b string) int { return cmp.Compare(numbers[a], numbers[b]) }), nil
}

// pruneAside removes all but the latest directories with what this machine had before restores elsewhere.
func pruneAside(dir string) error {
	all, err := asides(dir)
	if err != nil {
		return err
	}
	for _, old := range all[:max(len(all)-keptAside, 0)] {
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("old files: %w", err)
		}
	}
	return nil
}

// removeData removes the data of this machine's etcd.
func removeData() error {
	if err := os.RemoveAll(filepath.Join(storeDir, storeData)); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return atomicfile.SyncDir(storeDir)
}

var (
	errNoEtcdAuthority = errors.New("this machine has no certificates of the cluster's etcd: run \"ctl reset\" and " +
		"\"ctl join --control-plane\"")
	errNoRestored = errors.New("no API server of the restored cluster answers")
	errStranger   = errors.New("etcd of the restored cluster does not answer this machine; if this machine has other " +
		"authorities, run \"ctl reset\" and \"ctl join --control-plane\"")
)

// Joinable implements rejoin.Machine.
func (m *oldControlPlane) Joinable(ctx context.Context, epoch int64) error {
	_, err := m.etcdOf(ctx, epoch)
	return err
}

// Join implements rejoin.Machine. It needs no rights in the API: the certificates of etcd's clients and
// members on this machine are still valid, because a restore keeps the authorities.
func (m *oldControlPlane) Join(ctx context.Context, epoch int64) error {
	first, err := m.etcdOf(ctx, epoch)
	if err != nil {
		return err
	}
	client, err := connectEtcd(etcdURL(first, config.EtcdClientPort))
	if err != nil {
		return err
	}
	defer client.Close() // without a connection, nothing is lost
	_, err = m.joinLearner(ctx, m.config, client)
	return dropRemoved(ctx, err)
}

// Vote implements rejoin.Machine.
func (m *oldControlPlane) Vote(ctx context.Context, epoch int64) error {
	first, err := m.etcdOf(ctx, epoch)
	if err != nil {
		return err
	}
	if _, err := m.joinEtcd(ctx, m.config, first); err != nil {
		return dropRemoved(ctx, err)
	}
	return storeEpoch.Write(epoch)
}

// dropRemoved removes the data of etcd if err is errForeignData: an administrator has removed this machine's member
// from the restored cluster, which has all that its data have.
func dropRemoved(ctx context.Context, err error) error {
	if !errors.Is(err, errForeignData) {
		return err
	}
	return errors.Join(err, stopUnits(ctx, unit(etcd)), removeData())
}

// etcdOf returns the address of a machine whose API server has an epoch, and whose etcd answers this machine.
func (m *oldControlPlane) etcdOf(ctx context.Context, epoch int64) (first string, err error) {
	if !exists(etcdCredentials()) {
		return "", errNoEtcdAuthority
	}
	hosts, err := restoredHosts(ctx, m.config, epoch)
	if errors.Is(err, errNoRestored) {
		return "", noRestored(storeDir, rejoinJournal)
	}
	if err != nil {
		return "", err
	}
	var errs []error
	for _, first := range hosts {
		err := m.answers(ctx, first)
		if err == nil {
			return first, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// answers returns nil if etcd on a machine of the restored cluster can be reached, and accepts the credentials of
// this machine. No other machine may join it at the moment.
func (m *oldControlPlane) answers(ctx context.Context, host string) error {
	if err := reach(ctx, host, config.EtcdClientPort, config.EtcdPeerPort); err != nil {
		return fmt.Errorf("%w\nIf the API server there contains etcd, run \"ctl token create --control-plane\" there", err)
	}
	c, err := connectEtcd(etcdURL(host, config.EtcdClientPort))
	if err != nil {
		return err
	}
	defer c.Close() // without a connection, nothing is lost
	list, err := c.List(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errStranger, err)
	}
	return members.CheckLearners(list, m.config.Node.Name, peerURL(m.config))
}

// restoredHosts returns the addresses of the other machines whose API servers have an epoch and are ready. c is the
// configuration of this machine.
func restoredHosts(ctx context.Context, c *config.KeelsonConfiguration, epoch int64) (out []string, err error) {
	servers, err := agent.ReadServers(serverList)
	if err != nil {
		return nil, err
	}
	rc, err := kubeletConfig()
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		if s == apiAddress(c) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, callLimit)
		number, err := agent.Ready(limited, rc, s)
		cancel()
		if at, parseErr := netip.ParseAddrPort(s); err == nil && parseErr == nil && number == epoch {
			out = append(out, at.Addr().String())
		}
	}
	if len(out) == 0 {
		return nil, errNoRestored
	}
	return out, nil
}

// noRestored returns errNoRestored with the command that continues with the history before the restore, which is in
// the directory store or below it.
func noRestored(store string, j rejoin.Journal) error {
	e, err := j.Load()
	if err != nil {
		return err
	}
	kept, err := asides(store)
	if err != nil {
		return err
	}
	if e != nil && e.HasOld() && exists(filepath.Join(store, storeData)) {
		kept = []string{store}
	}
	if len(kept) == 0 {
		return errNoRestored // there was no store
	}
	dir := kept[len(kept)-1]
	return fmt.Errorf("%w; if its machine is lost, continue with the state before the restore on this one: "+
		"ctl restore --from-data-dir %s", errNoRestored, dir)
}

var errEpoch = errors.New("the API server has another epoch than the cluster")

// Start implements rejoin.Machine.
func (m *oldControlPlane) Start(ctx context.Context, epoch int64) error {
	of, err := cluster(m.config)
	if err != nil {
		return err
	}
	p := controlPlane(m.config, of)
	useEtcd(p, m.config)
	if err := errors.Join(writeManagerArgs(p), writeArgs(provision.APIServer, p.APIServerArgs())); err != nil {
		return err
	}
	programs := units([]string{provision.APIServer, provision.ControllerManager, provision.Scheduler})
	enable := append([]string{"enable"}, programs...)
	if err := errors.Join(systemctl(ctx, enable...), queueStart(ctx, programs...)); err != nil {
		return err
	}
	rc, err := kubeletConfig()
	if err != nil {
		return err
	}
	err = m.await(ctx, apiTimeout, func(ctx context.Context) error {
		number, err := agent.Ready(ctx, rc, apiAddress(m.config))
		if err == nil && number != epoch {
			return fmt.Errorf("%w: %d instead of %d", errEpoch, number, epoch)
		}
		return err
	})
	if err != nil {
		return err
	}
	api, err := newAdministrator(p.Server)
	if err != nil {
		return err
	}
	return errors.Join(api.keepNode(ctx, m.config), api.readmit(ctx, m.config))
}

var errPlaceholder = errors.New("the restored cluster waits for the node's report")

// keepNode makes sure that this machine's Node is that of a control plane. The restored store may not have the
// Node, or only a placeholder; or the kubelet has created it, which must not set the label.
func (a administrator) keepNode(ctx context.Context, c *config.KeelsonConfiguration) error {
	n, err := a.client.CoreV1().Nodes().Get(ctx, c.Node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return a.createNode(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	if _, ok := n.Annotations[restorehold.Placeholder]; ok {
		return errPlaceholder
	}
	if _, ok := n.Labels[nodes.ControlPlaneLabel]; ok {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": map[string]string{nodes.ControlPlaneLabel: ""}}})
	if err != nil {
		return err
	}
	_, err = a.client.CoreV1().Nodes().Patch(ctx, c.Node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// rejoinCondition says what the control plane does, after a step with an error or nil. e is nil when it has joined the
// cluster with the highest epoch, whose etcd has a number of members with a vote, or 0 if that is unknown.
func rejoinCondition(e *rejoin.Entry, err error, highest int64, voters int) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.Rejoined, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMember,
		Message: fmt.Sprintf("the control plane has joined the cluster that was restored with the epoch %d", highest)}
	if e != nil {
		c.Status, c.Reason = metav1.ConditionFalse, string(e.Step)
		c.Message = fmt.Sprintf("the control plane joins the cluster that was restored with the epoch %d", e.Epoch)
	}
	if err != nil {
		c.Message += ": " + err.Error()
	}
	if voters > 0 {
		c.Message += ". " + survival(voters)
	}
	return c
}

// reportLimit is how long a report may take.
const reportLimit = 2 * time.Second

// report writes a condition into the machine's object. Nothing depends on it.
func (m *oldControlPlane) report(ctx context.Context, c metav1.Condition) {
	ctx, cancel := context.WithTimeout(ctx, reportLimit)
	defer cancel()
	rc, err := kubeletConfig()
	if err != nil {
		return
	}
	client, err := machines.NewClient(rc)
	if err != nil {
		return
	}
	err = client.SetStatus(ctx, m.config.Node.Name, func(o *v1alpha1.Machine) {
		meta.SetStatusCondition(&o.Status.Conditions, c)
	})
	if err != nil {
		m.Log.Info("Failed to report the state of the control plane", "err", err)
	}
}
