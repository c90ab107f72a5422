// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/machine/agent"
	"keelson.dev/keelson/pkg/machine/config"
	"keelson.dev/keelson/pkg/machine/upgrade"
	"keelson.dev/keelson/pkg/provision"
)

const (
	// switcher is the name of the unit that switches releases. It is not one of the machine's programs.
	switcher = "switch"
	// switching is a link to the old release while a switch is not done.
	switching = releases + "/switching"
	// switchJournal has the last switch.
	switchJournal = upgrade.Journal(state + "/switch.json")
)

// Limits for the health of a restarted program.
const (
	healthLimit = 2 * time.Minute
	healthPoll  = 100 * time.Millisecond
	// settled is how long a program must run without a restart.
	settled = 2 * time.Second
	// crashes is how often a program may end until it counts as broken. Then its machine does not wait for
	// the end of healthLimit.
	crashes = 3
	// unreachable is how long the check of a node waits for the API. The API may be unreachable for reasons
	// that have nothing to do with the release.
	unreachable = 10 * time.Second
	callLimit   = 5 * time.Second
	// importLimit limits the import of the images of a release, which takes some seconds.
	importLimit = 2 * time.Minute
)

// SwitchRelease ends the switch to another release that the agent has begun, if there is one.
func SwitchRelease(ctx context.Context, d Deps) error {
	c, err := readConfiguration()
	if err != nil {
		return err
	}
	m := &host{Deps: d, config: c, releases: newReleaseDirs(releases)}
	if err := upgrade.Run(ctx, switchJournal, m, d.Log); err != nil {
		return err
	}
	if err := os.Remove(switching); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("link to the old release: %w", err)
	}
	return nil
}

// host is this machine.
type host struct {
	Deps
	config   *config.KeelsonConfiguration
	releases *releaseDirs
}

var (
	_ upgrade.Machine = (*host)(nil)
	_ upgrade.Local   = (*host)(nil)
)

// Programs implements upgrade.Machine.
func (m *host) Programs(ctx context.Context, from, to string) ([]string, error) {
	all := restartOrder(older(m.releases.version(ctx, to), m.releases.version(ctx, from)))
	return slices.DeleteFunc(all, func(p string) bool { return !hasFlags(p) }), nil
}

// restartOrder returns all programs in the order in which they are restarted. older is true if the new release has
// an older minor version of Kubernetes. In both orders, the API server follows etcd, whose restart stops it.
func restartOrder(older bool) []string {
	all := provision.RestartOrder()
	if older {
		slices.Reverse(all)
		last := len(all) - 1
		all[last-1], all[last] = all[last], all[last-1]
	}
	return all
}

// older reports whether a version of Kubernetes has a lower minor number than another one. A release that does
// not run has no version, and none of its programs is newer than others then.
func older(v, than string) bool {
	a, err := version.ParseSemantic(v)
	if err != nil {
		return false
	}
	b, err := version.ParseSemantic(than)
	return err == nil && a.Minor() < b.Minor()
}

// Import implements upgrade.Machine.
func (m *host) Import(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, importLimit)
	defer cancel()
	// The switcher may not see the socket: if containerd has not run since the boot when the switcher starts, and in a
	// unit of an early release, in which a return goes on after a power failure.
	if st, err := showUnit(ctx, containerd); err != nil || !st.active || !exists(containerImages.Socket) {
		m.Log.Warn("The images of the release are not imported yet, because containerd cannot be reached", "err", err)
		return false, nil
	}
	if err := importImages(ctx, name); err != nil {
		return false, fmt.Errorf("images of release %s: %w", name, err)
	}
	return true, nil
}

// Use implements upgrade.Machine.
func (m *host) Use(ctx context.Context, name string) error {
	if err := useRelease(filepath.Join(releases, name)); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(releases); err != nil {
		return err
	}
	return linkUnits(ctx) // systemd also reads all units again
}

// Runs implements upgrade.Machine.
func (m *host) Runs(ctx context.Context, program string) (string, error) {
	st, err := showUnit(ctx, program)
	if err != nil || st.pid == 0 {
		return "", err
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", st.pid))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil // it has just ended
	}
	if err != nil {
		return "", fmt.Errorf("program: %w", err)
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(exe, releases+"/"), "/")
	return name, nil
}

// Restart implements upgrade.Machine. systemctl waits until the program is ready, for etcd without a limit. A
// program that is not ready in time counts as restarted, so that Healthy decides.
//
// The API server ends before etcd, and starts as the next program. Otherwise a request in it would wait for seconds
// for an etcd that has ended, and so would its end. Clients use another API server meanwhile.
func (m *host) Restart(ctx context.Context, program string) error {
	limited, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	var err error
	if program == etcd {
		err = systemctl(limited, "stop", unit(provision.APIServer))
	}
	err = errors.Join(err, systemctl(limited, "restart", unit(program)))
	failed := (*exec.ExitError)(nil)
	if ctx.Err() == nil && (limited.Err() != nil || errors.As(err, &failed)) {
		m.Log.Warn("Failed to restart a program", "program", program, "err", err)
		return nil // systemd goes on trying
	}
	return err
}

// unitState is what systemd knows about a unit.
type unitState struct {
	active   bool
	pid      int // 0 if there is no process
	restarts int
	started  time.Time
}

func showUnit(ctx context.Context, program string) (st unitState, err error) {
	out, err := exec.CommandContext(ctx, "systemctl", "show", "--timestamp=unix",
		"--property=ActiveState,MainPID,NRestarts,ExecMainStartTimestamp", unit(program)).Output()
	if err != nil {
		return st, fmt.Errorf("unit: %w", err)
	}
	return parseUnit(string(out)), nil
}

// parseUnit reads lines of the form NAME=VALUE.
func parseUnit(lines string) (st unitState) {
	for line := range strings.Lines(lines) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		number, _ := strconv.Atoi(strings.TrimPrefix(value, "@")) // 0 if there is none
		switch name {
		case "ActiveState":
			st.active = value == "active"
		case "MainPID":
			st.pid = number
		case "NRestarts":
			st.restarts = number
		case "ExecMainStartTimestamp":
			st.started = time.Unix(int64(number), 0)
		}
	}
	return st
}

var (
	errCrashes     = errors.New("it ends again and again")
	errNotActive   = errors.New("it does not run")
	errNotSettled  = errors.New("it has just started")
	errUnreachable = errors.New("the API cannot be reached")
)

// Healthy implements upgrade.Machine.
func (m *host) Healthy(ctx context.Context, program string) error {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	var first, last unitState
	var since, reachable time.Time // since when the same process runs; when the API was last reachable
	for begun := false; ; begun = true {
		now := m.Clock.Now()
		st, err := showUnit(ctx, program)
		if err == nil {
			if !begun {
				first, reachable = st, now
			}
			if st.pid != last.pid || !begun {
				last, since = st, now
			}
			if st.restarts-first.restarts >= crashes {
				return errCrashes
			}
			err = m.healthy(ctx, program, st, now.Sub(since))
		}
		switch {
		case err == nil, errors.Is(err, errUnreachable) && now.Sub(reachable) > unreachable:
			return nil
		case !errors.Is(err, errUnreachable):
			reachable = now
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not healthy after %s: %w", healthLimit, err)
		case <-m.Clock.After(healthPoll):
		}
	}
}

// healthy returns nil if a program, which has run for some time, is healthy.
func (m *host) healthy(ctx context.Context, program string, st unitState, runs time.Duration) error {
	switch {
	case !st.active || st.pid == 0:
		return errNotActive
	case runs < settled:
		return errNotSettled
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	switch program {
	case provision.APIServer:
		return serverReady(ctx, apiAddress(m.config))
	case kubelet:
		return kubeletReady(ctx, m.config.Node.Name, st.started)
	case agentName:
		return agentAnswers(ctx)
	}
	return nil
}

// agentAnswers returns nil if the agent's load balancer handles connections. systemd accepts them in its
// place while it does not run, so only an answer counts: that of an API server, which expects TLS, or the
// end of the connection, which the load balancer closes after some seconds if no API server can be reached.
func agentAnswers(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(config.AgentPort)))
	if err != nil {
		return fmt.Errorf("load balancer: %w", err)
	}
	defer conn.Close() // Close cannot fail in a way that matters, because nothing is expected any more
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline) // fails only for a connection without deadlines
	if _, err := conn.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		return nil // it has closed the connection
	}
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("load balancer: %w", err)
	}
	return nil
}

// serverReady returns nil if an API server is ready.
func serverReady(ctx context.Context, server string) error {
	rc, err := kubeletConfig()
	if err != nil {
		return err
	}
	_, err = agent.Ready(ctx, rc, server)
	return err
}

var errLease = errors.New("the kubelet has not yet renewed its Lease")

// kubeletReady returns nil if the node is ready, and its kubelet, which was started at a time, has
// reached the API.
func kubeletReady(ctx context.Context, node string, started time.Time) error {
	client, err := kubeletClient()
	if err != nil {
		return err
	}
	return kubeletHealthy(ctx, client, node, started)
}

// kubeletHealthy is kubeletReady with a client.
func kubeletHealthy(ctx context.Context, client kubernetes.Interface, node string, started time.Time) error {
	lease, err := client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return reachability(err)
	}
	if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(started) {
		return errLease
	}
	return reachability(nodeReady(ctx, client, node))
}

// reachability returns errUnreachable for an error that is not an answer of the API.
func reachability(err error) error {
	var answer apierrors.APIStatus
	if err == nil || errors.Is(err, errNotReady) || errors.As(err, &answer) {
		return err
	}
	return fmt.Errorf("%w: %w", errUnreachable, err)
}

// Current implements upgrade.Local.
func (m *host) Current() (string, error) { return currentRelease() }

// Releases implements upgrade.Local.
func (m *host) Releases(ctx context.Context) ([]v1alpha1.Release, error) { return m.releases.list(ctx) }

// ControlPlane implements upgrade.Local.
func (m *host) ControlPlane() bool { return hasControlPlane() }

// Check implements upgrade.Local.
func (m *host) Check(ctx context.Context, name string) error { return m.releases.check(ctx, name) }

// Begin implements upgrade.Local.
func (m *host) Begin(e *upgrade.Entry) error {
	return exclusively(func() error {
		if err := notRejoining(rejoinJournal); err != nil {
			return err
		}
		return switchJournal.Save(e)
	})
}

// Switch implements upgrade.Local. The switcher's unit starts only if the link exists.
func (m *host) Switch(ctx context.Context, e *upgrade.Entry) error {
	if err := replaceLink(switching, filepath.Join(releases, e.From)); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(releases); err != nil {
		return err
	}
	return queueStart(ctx, unit(switcher))
}
