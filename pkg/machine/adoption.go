// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/filelock"
	"keelson.dev/keelson/pkg/machine/adopt"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/provision"
)

// adoption has the directories of an adoption.
var adoption = adopt.Paths{
	Manifests: string(controlDir) + "/manifests", Parked: string(controlDir) + "/keelson-adopted", Own: ownConfig,
}

// adoptionLock is the path of the file that Adopt and Unadopt lock. It is in no directory of the machine's state,
// because Unadopt removes those while it has the lock.
var adoptionLock = "/run/keelson-adopt.lock"

const (
	// endLimit is how long the kubelet may take to end static pods. It gives them 30 s, one after the other in
	// the worst case.
	endLimit = 3 * time.Minute
	// drainTime is how long Kubernetes' API server may answer the requests that it has. It waits for watches,
	// too, until the kubelet kills it after half a minute, and does not accept connections meanwhile.
	drainTime = 3 * time.Second
	// returnLimit is how long Kubernetes' control plane may take to come back. The kubelet waits up to five
	// minutes before it starts a container again that has failed.
	returnLimit = 8 * time.Minute
)

// AdoptOptions describe an adoption.
type AdoptOptions struct {
	// Drop has the names of flags in the manifests that Keelson's programs do not get.
	Drop []string
	// DryRun is true if only the checks are made.
	DryRun bool
}

var (
	errKeelson = errors.New("this machine belongs to a cluster of Keelson: only a machine whose control plane kubeadm " +
		"has made can be adopted")
	errOtherRelease = errors.New("this machine was adopted by another release: run its \"ctl unadopt\" first, or use " +
		"its ctl")
	errDropLate = errors.New("the control plane is adopted with this flag already: remove it from the file of the " +
		"program in " + ownConfig + ", and restart the program's unit")
	errRunsAlready = errors.New("\"ctl adopt\" or \"ctl unadopt\" runs on this machine already: wait until it has ended")
	errAdopted     = errors.New("this machine's control plane was adopted from kubeadm, and this command is only for " +
		"machines of \"ctl init\" and \"ctl join\": run \"ctl unadopt\" first")
)

// NotAdopted returns an error on a machine whose control plane was adopted. Its kubelet and its certificates are
// not Keelson's, so that most commands would destroy them.
func NotAdopted() error {
	if exists(adoption.Parked) {
		return errAdopted
	}
	return nil
}

// Adopt replaces the control plane that kubeadm has made on this machine by that of the release to which this
// program belongs. It can be interrupted and repeated.
func Adopt(ctx context.Context, o *AdoptOptions, d Deps) error {
	return alone(func() error { return takeOver(ctx, o, d) })
}

// alone calls f while no other process changes which control plane this machine has. If there is one, it returns an
// error.
func alone(f func() error) error {
	unlock, err := filelock.TryLock(adoptionLock)
	if errors.Is(err, filelock.ErrLocked) {
		return errRunsAlready
	}
	if err != nil {
		return err
	}
	defer unlock()
	return f()
}

// takeOver does what Adopt promises.
func takeOver(ctx context.Context, o *AdoptOptions, d Deps) error {
	dir, err := release()
	if err != nil {
		return err
	}
	phase, err := adoption.Phase()
	if err != nil {
		return err
	}
	if err := adoption.Conflict(); err != nil {
		return err
	}
	drop, err := dropped(o.Drop, phase)
	if err != nil {
		return err
	}
	m, err := newAdopter(dir, drop, phase, d)
	if err != nil {
		return err
	}
	if used, err := filepath.EvalSymlinks(current); phase != "" && err == nil && used != dir {
		return errOtherRelease
	}
	if !adoption.Begun() {
		if err := m.check(ctx); err != nil {
			return err
		}
	}
	m.describe(o)
	if o.DryRun {
		return nil
	}
	files, err := m.files()
	if err != nil {
		return err
	}
	a := &adopt.Adoption{Paths: adoption, Machine: m, Files: files, Drop: drop, Run: m.run}
	if err := a.Adopt(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.Out, `
Keelson's control plane runs on this machine, with the store and the certificates of Kubernetes'. The
manifests are in %s. To return:

  %s/bin/ctl unadopt
`, adoption.Parked, current)
	return nil
}

// Unadopt brings the control plane back that Adopt has replaced. It can be interrupted and repeated.
func Unadopt(ctx context.Context, d Deps) error {
	return alone(func() error { return giveBack(ctx, d) })
}

// giveBack does what Unadopt promises.
func giveBack(ctx context.Context, d Deps) error {
	phase, err := adoption.Phase()
	if err != nil {
		return err
	}
	if phase == "" {
		fmt.Fprintln(d.Out, "There is nothing to do: the control plane of this machine is not adopted.")
		return nil
	}
	if err := adoption.Conflict(); err != nil {
		return err
	}
	// The manifests may have been edited. The kubelet decides whether they are right.
	m := &adopter{steps: &steps{Deps: d}}
	a := &adopt.Adoption{Paths: adoption, Machine: m, Run: m.run}
	if err := a.Return(ctx); err != nil {
		return fmt.Errorf("%w\nRepeat the command: this machine may have no control plane until it succeeds", err)
	}
	if m.unchecked == nil {
		fmt.Fprintln(d.Out, "\nKubernetes' control plane runs on this machine again.")
		return nil
	}
	fmt.Fprintf(d.Out, "\nThe kubelet has the manifests of Kubernetes' control plane again. Check whether it is healthy; "+
		"this command could not: %v\n", m.unchecked)
	return nil
}

// adopter is a machine that is adopted.
type adopter struct {
	*steps
	host     *host
	release  string // directory
	pods     *adopt.Pods
	programs []adopt.Program
	config   *config.KeelsonConfiguration
	api      *watcher
	// unchecked says why Returned could not check the health of Kubernetes' control plane, or is nil.
	unchecked error
}

var _ adopt.Machine = (*adopter)(nil)

// dropped returns the names of all flags that the programs do not get: those with which the adoption has begun, and
// those that the user names now.
func dropped(now []string, phase adopt.Phase) ([]string, error) {
	out, err := adoption.Dropped()
	if err != nil {
		return nil, err
	}
	for _, name := range now {
		switch {
		case slices.Contains(out, name):
		case phase == adopt.Adopted:
			return nil, fmt.Errorf("--drop-flag=%s: %w", name, errDropLate)
		default:
			out = append(out, name)
		}
	}
	return out, nil
}

// newAdopter reads the manifests. dir is the directory of the release that adopts the machine. drop has the names of
// flags that no program gets.
func newAdopter(dir string, drop []string, phase adopt.Phase, d Deps) (*adopter, error) {
	if phase == "" && Installed() {
		return nil, errKeelson
	}
	pods, err := adopt.Read(adoption.Manifests, adoption.Parked)
	if err != nil {
		return nil, err
	}
	m := &adopter{steps: &steps{Deps: d}, release: dir, pods: pods, programs: pods.Programs(drop)}
	m.config, err = adoptedConfiguration(pods)
	if err != nil {
		return nil, err
	}
	m.host = &host{Deps: d, config: m.config}
	m.api, err = newWatcher(provision.KubeletKubeconfig, "https://"+apiAddress(m.config))
	return m, err
}

var errPort = errors.New("not a port")

// adoptedConfiguration returns the configuration of a machine with the given static pods.
func adoptedConfiguration(pods *adopt.Pods) (*config.KeelsonConfiguration, error) {
	c := &config.KeelsonConfiguration{}
	c.ClusterName = pods.Value(adopt.ControllerManager, "cluster-name")
	c.Node.Name = pods.Value(adopt.Etcd, "name") // kubeadm uses the name of the node
	address := pods.Value(adopt.APIServer, "advertise-address")
	c.Node.Addresses, c.APIServer.AdvertiseAddress = []string{address}, address
	if ranges := pods.Value(adopt.ControllerManager, "cluster-cidr"); ranges != "" {
		c.Network.PodCIDRs = strings.Split(ranges, ",")
	}
	c.Network.ServiceCIDRs = strings.Split(pods.Value(adopt.APIServer, "service-cluster-ip-range"), ",")
	c.Network.Plugin = config.PluginExternal
	if text := pods.Value(adopt.APIServer, "secure-port"); text != "" {
		port, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("--secure-port=%s: %w", text, errPort)
		}
		c.APIServer.Port = port
	}
	config.Default(c, config.Facts{})
	return c, nil
}

// files returns the files in ownConfig.
func (m *adopter) files() ([]adopt.File, error) {
	var own bytes.Buffer
	if err := config.Print(&own, m.config); err != nil {
		return nil, err
	}
	out := []adopt.File{{Name: filepath.Base(configFile), Data: own.Bytes()}}
	for i := range m.programs {
		p := &m.programs[i]
		content, err := argsContent(p.Name, p.Args())
		if err != nil {
			return nil, err
		}
		for _, e := range p.Environment {
			content = append(content, e.Name+"="+strconv.Quote(e.Value)+"\n"...)
		}
		out = append(out, adopt.File{Name: filepath.Base(argsFile(p.Name)), Data: content})
	}
	return out, nil
}

// describe prints what the programs get.
func (m *adopter) describe(o *AdoptOptions) {
	for i := range m.programs {
		p := &m.programs[i]
		fmt.Fprintf(m.Out, "%s gets %d flags", unit(p.Name), len(p.Flags))
		if o.DryRun {
			fmt.Fprintf(m.Out, ": %s", strings.Join(p.Args(), " "))
		}
		fmt.Fprintln(m.Out)
		for _, f := range p.Dropped {
			fmt.Fprintf(m.Out, "  without --%s\n", f.Name)
		}
	}
}

// Enable implements adopt.Machine.
func (m *adopter) Enable(ctx context.Context) error {
	if err := os.MkdirAll(state, 0o700); err != nil { // for "ctl backup"
		return fmt.Errorf("directory: %w", err)
	}
	if err := useRelease(m.release); err != nil {
		return err
	}
	if err := linkUnits(ctx); err != nil {
		return err
	}
	return systemctl(ctx, append([]string{"enable"}, units(controlPrograms())...)...)
}

var errRuns = errors.New("its process runs")

// processes finds the processes of the static pods.
func (m *adopter) processes() adopt.Processes {
	return adopt.Processes{Proc: "/proc", Logs: "/var/log/pods", Node: m.config.Node.Name}
}

// Ended implements adopt.Machine. It looks for processes, because a component that ends closes its port first.
func (m *adopter) Ended(ctx context.Context, components ...string) error {
	began := m.Clock.Now()
	err := provision.Wait(ctx, m.Clock, endLimit, func(ctx context.Context) error {
		for _, c := range components {
			found, err := m.processes().Find(c)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				continue
			}
			if c == adopt.APIServer && m.Clock.Since(began) > drainTime && m.drains(ctx) {
				if err := m.processes().Kill(c); err != nil {
					return err
				}
			}
			return fmt.Errorf("%s: %w (%d)", c, errRuns, found)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the kubelet has not ended Kubernetes' control plane within %s: %w", endLimit, err)
	}
	return nil
}

// drains reports whether Kubernetes' API server accepts no connections any more, because the kubelet ends it.
func (m *adopter) drains(ctx context.Context) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", apiAddress(m.config))
	if err == nil {
		_ = conn.Close() // nothing was sent
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

// Start implements adopt.Machine. It starts all programs at once, so that the API is missing for a short time.
func (m *adopter) Start(ctx context.Context) error {
	began := m.Clock.Now()
	if err := systemctl(ctx, append([]string{"start", "--no-block"}, units(controlPrograms())...)...); err != nil {
		return err
	}
	for i := range m.programs {
		p := &m.programs[i]
		err := m.host.Healthy(ctx, p.Name)
		if url := healthURL(p); err == nil && url != "" {
			err = m.await(ctx, healthLimit, func(ctx context.Context) error { return answersHealthy(ctx, url) })
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return m.await(ctx, nodeTimeout, func(ctx context.Context) error { return m.api.healthy(ctx, began) })
}

// Stop implements adopt.Machine.
func (m *adopter) Stop(ctx context.Context) error {
	return errors.Join(removeUnits(ctx), removeTree(state))
}

// Unlink implements adopt.Machine.
func (m *adopter) Unlink() error {
	var errs []error
	for _, link := range releaseLinks() {
		errs = append(errs, removeFile(link))
	}
	return errors.Join(errs...)
}
