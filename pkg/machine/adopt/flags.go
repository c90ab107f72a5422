// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/provision"
)

// program is one of Keelson's programs that takes the place of a component.
type program struct {
	name string // as in the name of its unit
	// needless are flags of the component that the program does not have, because it works without them.
	needless []string
	// more are flags that the program gets in addition.
	more []Flag
}

// programs returns Keelson's programs by component.
func programs() map[string]program {
	// Keelson's programs authenticate clients of their own servers by certificates only, and need no
	// kubeconfig for that.
	serving := []string{"authentication-kubeconfig", "authorization-kubeconfig"}
	return map[string]program{
		Etcd:      {name: "etcd"},
		APIServer: {name: provision.APIServer, more: []Flag{{"serve-store-snapshots", "true"}}}, // for "ctl backup"
		ControllerManager: {name: provision.ControllerManager,
			// The name is for cloud providers.
			needless: append(serving, "requestheader-client-ca-file", "cluster-name")},
		Scheduler: {name: provision.Scheduler, needless: serving},
	}
}

// Program is a program of Keelson with its flags.
type Program struct {
	Name        string // as in the name of its unit
	Flags       []Flag
	Environment []v1.EnvVar
	// Dropped are the flags of the component that the program does not get.
	Dropped []Flag
}

// Args returns the flags as arguments.
func (p *Program) Args() []string {
	out := make([]string, len(p.Flags))
	for i, f := range p.Flags {
		out[i] = f.String()
	}
	return out
}

// Value returns the last value of a flag, or "" if the program does not get it.
func (p *Program) Value(flag string) string { return value(p.Flags, flag) }

// Programs returns Keelson's programs with the flags of the static pods, in the order in which they start. drop
// has names of flags that no program gets, in addition to those that Keelson's programs do not need.
func (p *Pods) Programs(drop []string) []Program {
	var out []Program
	for _, component := range components() {
		of := programs()[component]
		each := Program{Name: of.name, Environment: p.environment[component]}
		for _, f := range p.flags[component] {
			if slices.Contains(of.needless, f.Name) || slices.Contains(drop, f.Name) {
				each.Dropped = append(each.Dropped, f)
			} else {
				each.Flags = append(each.Flags, f)
			}
		}
		each.Flags = append(each.Flags, of.more...)
		out = append(out, each)
	}
	return out
}

var (
	errFlags = errors.New("Keelson's programs do not accept these flags: remove them from the manifests, or leave them " +
		"out with --drop-flag=NAME")
	errExternal = errors.New("the API server uses an etcd that is not on this machine, or several: only a cluster " +
		"whose only etcd is the one in the manifests can be adopted")
	errMembers = errors.New("the manifest of etcd names several members: a cluster with several control planes cannot " +
		"be adopted, because its etcd would be used by Kubernetes' and Keelson's control planes at the same time")
	errDirectory = errors.New("the data of etcd must be in " + store + ", the only directory that its unit can write")
	errHidden    = errors.New("Keelson's units do not see this path, because directories with sockets and secrets of " +
		"other programs are hidden from them: move the file, for example to /etc/kubernetes, or leave the flag out with " +
		"--drop-flag=NAME")
	errLog = errors.New("Keelson's API server can write its audit log only below " + logs)
)

const (
	// store is the directory of etcd's data.
	store = "/var/lib/etcd"
	// logs is the directory of the audit log.
	logs = "/var/log/kubernetes"
	// localPort is the port of etcd for clients.
	localPort = "2379"
)

// Check returns an error if Keelson's programs, with the flags in all, cannot be the control plane of the machine.
// views are what their units see, by program.
func Check(all []Program, views map[string]View) error {
	var errs []error
	for i := range all {
		p := &all[i]
		switch p.Name {
		case programs()[APIServer].name:
			errs = append(errs, checkServer(p))
		case programs()[Etcd].name:
			errs = append(errs, checkStore(p))
		}
		for _, f := range p.Flags {
			if slices.ContainsFunc(f.Paths(), func(path string) bool { return !views[p.Name].sees(path) }) {
				errs = append(errs, fmt.Errorf("%s of %s: %w", f, p.Name, errHidden))
			}
		}
	}
	return errors.Join(errs...)
}

// checkServer checks the flags of the API server.
func checkServer(p *Program) error {
	if u, err := url.Parse(p.Value("etcd-servers")); err != nil || !local(u) {
		return fmt.Errorf("--etcd-servers=%s: %w", p.Value("etcd-servers"), errExternal)
	}
	if file := p.Value("audit-log-path"); file != "" && file != "-" && !below(logs, file) {
		return fmt.Errorf("--audit-log-path=%s: %w", file, errLog)
	}
	return nil
}

// checkStore checks the flags of etcd.
func checkStore(p *Program) error {
	if all := p.Value("initial-cluster"); strings.Contains(all, ",") {
		return fmt.Errorf("--initial-cluster=%s: %w", all, errMembers)
	}
	if dir := p.Value("data-dir"); filepath.Clean(dir) != store {
		return fmt.Errorf("--data-dir=%s: %w", dir, errDirectory)
	}
	if dir := p.Value("wal-dir"); dir != "" && !below(store, dir) {
		return fmt.Errorf("--wal-dir=%s: %w", dir, errDirectory)
	}
	return nil
}

// below reports whether a path is below a directory.
func below(dir, path string) bool { return strings.HasPrefix(filepath.Clean(path), dir+"/") }

// local reports whether a URL is that of the etcd on this machine.
func local(u *url.URL) bool {
	a, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" && u.Port() == localPort && (u.Hostname() == "localhost" || err == nil && a.IsLoopback())
}

// CheckFlags returns an error that names all flags that the programs do not accept. accepts runs a program, and
// returns an error if it does not accept the arguments.
func CheckFlags(ctx context.Context, all []Program,
	accepts func(ctx context.Context, program string, args ...string) error) error {
	var errs []error
	for i := range all {
		p := &all[i]
		args := p.Args()
		if accepts(ctx, p.Name, args...) == nil {
			continue
		}
		// A program reports only the first fault.
		for _, arg := range args {
			if err := accepts(ctx, p.Name, arg); err != nil {
				errs = append(errs, fmt.Errorf("%s of %s: %w", arg, p.Name, err))
			}
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w\n%w", errFlags, errors.Join(errs...))
	}
	return nil
}
