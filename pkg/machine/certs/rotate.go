// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/filelock"
	"keelson.dev/keelson/pkg/machine/nodes"
	"keelson.dev/keelson/pkg/pki"
)

// nodePoll is how often a rotation looks which machines have reported.
const nodePoll = 2 * time.Second

// Rotation replaces the authorities of a cluster. It runs on a control plane.
type Rotation struct {
	Machine *Machine
	// Client returns a client with the rights of an administrator. It is called for each request,
	// because the rotation replaces the administrator's certificate too.
	Client func() (kubernetes.Interface, error)
	// KeepOld ends the rotation before the old authorities are forgotten.
	KeepOld bool
	// Force does not wait for machines that are not ready.
	Force   bool
	Timeout time.Duration // how long to wait for machines after each step
	Clock   clock.Clock
	Out     io.Writer
}

// Errors of a rotation.
var (
	ErrNoControlPlane = errors.New("this machine has no control plane; run the command on one that has")
	errOldKeys        = errors.New("this machine does not have the keys that sign for the cluster; run the command on " +
		"another control plane")
	errWaiting = errors.New("not all machines have reported")
)

// Run does all remaining steps of a rotation. It continues a rotation that was interrupted.
func (r *Rotation) Run(ctx context.Context) error {
	if r.Machine.Control == nil {
		return ErrNoControlPlane
	}
	for {
		done, err := r.step(ctx)
		if done || err != nil {
			return err
		}
	}
}

// step does the next step, and reports whether it was the last one.
func (r *Rotation) step(ctx context.Context) (done bool, err error) {
	client, err := r.Client()
	if err != nil {
		return false, err
	}
	secret, err := readSecret(ctx, client)
	if err != nil {
		return false, err
	}
	s, stored, err := r.read(ctx, client)
	if err != nil {
		return false, err
	}
	if secret == nil {
		return false, r.begin(ctx, client, s, stored)
	}
	next, err := announcedIn(secret)
	if err != nil {
		return false, err
	}
	switch {
	case stored == nil, !s.all(next, func(g *generation, n *x509.Certificate) bool { return contains(g.bundle, n) }):
		fmt.Fprintln(r.Out, "Step 1 of 3: all machines trust the old and the new authorities.")
		return false, r.write(ctx, client, s.trusting(next, secret), stored)
	case !s.all(next, func(g *generation, n *x509.Certificate) bool { return g.signer.Equal(n) }):
		if err := r.await(ctx, stored); err != nil {
			return false, err
		}
		fmt.Fprintln(r.Out, "Step 2 of 3: all certificates are issued again by the new authorities.")
		return false, r.write(ctx, client, s.signedBy(next), stored)
	case !s.all(next, func(g *generation, _ *x509.Certificate) bool { return len(g.bundle) == 1 }):
		if err := r.await(ctx, stored); err != nil {
			return false, err
		}
		if r.KeepOld {
			fmt.Fprintln(r.Out, "The old authorities are still trusted. Replace copies of kubeconfig files, and run "+
				"\"ctl certs rotate-ca\" to forget them.")
			return true, nil
		}
		fmt.Fprintln(r.Out, "Step 3 of 3: the old authorities are forgotten.")
		return false, r.write(ctx, client, s.only(next), stored)
	}
	if err := r.await(ctx, stored); err != nil {
		return false, err
	}
	if err := r.end(ctx, secret.UID); err != nil {
		return false, err
	}
	fmt.Fprintln(r.Out, "The authorities are replaced.")
	return true, nil
}

// deletions is how often end tries to delete the Secret.
const deletions = 5

// end deletes the Secret of the new authorities, so that the next run begins another rotation. It tries
// again if it is not known whether the server has deleted it.
func (r *Rotation) end(ctx context.Context, uid types.UID) (err error) {
	for range deletions {
		var client kubernetes.Interface
		if client, err = r.Client(); err != nil {
			return err
		}
		err = client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, keysSecret,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))})
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
	}
	return fmt.Errorf("keys of the new authorities: %w", err)
}

// read returns the cluster's state, and the ConfigMap that has it. Before the first rotation, there is
// no ConfigMap, and the state is that of this machine's files. If the cluster has got a separate etcd since
// the ConfigMap was written, only the state has its authority.
func (r *Rotation) read(ctx context.Context, client kubernetes.Interface) (state, *v1.ConfigMap, error) {
	var present state
	err := filelock.While(r.Machine.Lock, func() (err error) {
		present, err = r.Machine.present()
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	m, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, configMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return present, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("authorities: %w", err)
	}
	s, err := parse(m)
	if err != nil {
		return nil, nil, err
	}
	for name, g := range present {
		if s[name] == nil {
			s[name] = g
		}
	}
	return s, m, nil
}

// write stores a state.
func (r *Rotation) write(ctx context.Context, client kubernetes.Interface, s state, stored *v1.ConfigMap) error {
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	var err error
	if stored == nil {
		_, err = maps.Create(ctx, s.object(), metav1.CreateOptions{})
	} else {
		stored.Data = s.data() // another rotation that runs at the same time makes the update fail
		_, err = maps.Update(ctx, stored, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("authorities: %w", err)
	}
	return nil
}

// begin makes the new authorities.
func (r *Rotation) begin(ctx context.Context, client kubernetes.Interface, s state, stored *v1.ConfigMap) error {
	if stored != nil {
		if err := r.await(ctx, stored); err != nil {
			return err
		}
	}
	old := map[string]*pki.Authority{}
	// The state may also have the authority of an etcd that is not separate any more since a restore.
	for _, name := range r.Machine.Control.AuthorityNames() {
		a, err := pki.ReadAuthority(r.Machine.Control.Dir.PKI(name))
		if err != nil {
			return err
		}
		if !a.Cert.Equal(s[name].signer) {
			return errOldKeys
		}
		old[name] = a
	}
	secret, err := successors(old, r.Machine.Control.Cluster.Life.Authority, r.Clock)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, secret, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("keys of the new authorities: %w", err)
	}
	return nil
}

// announcedIn returns the new authorities in a Secret by name.
func announcedIn(secret *v1.Secret) (map[string]*x509.Certificate, error) {
	out := map[string]*x509.Certificate{}
	for key := range secret.Data {
		dotted, ok := strings.CutSuffix(key, keyEnding)
		if !ok {
			continue
		}
		next, _, err := announced(secret, nameOf(dotted))
		if err != nil {
			return nil, err
		}
		out[nameOf(dotted)] = next
	}
	return out, nil
}

// all reports whether a condition holds for all authorities that have a successor.
func (s state) all(next map[string]*x509.Certificate, holds func(*generation, *x509.Certificate) bool) bool {
	for name, n := range next {
		if g := s[name]; g != nil && !holds(g, n) {
			return false
		}
	}
	return true
}

// trusting returns s with the successors as additional authorities.
func (s state) trusting(next map[string]*x509.Certificate, secret *v1.Secret) state {
	out := state{}
	for name, g := range s {
		out[name] = g
		if n := next[name]; n != nil {
			_, cross, _ := announced(secret, name) // it was read before
			out[name] = &generation{bundle: union(g.bundle, []*x509.Certificate{n}), cross: cross, signer: g.signer}
		}
	}
	return out
}

// signedBy returns s with the successors as the authorities that sign.
func (s state) signedBy(next map[string]*x509.Certificate) state {
	out := state{}
	for name, g := range s {
		out[name] = g
		if n := next[name]; n != nil {
			out[name] = &generation{bundle: g.bundle, cross: g.cross, signer: n}
		}
	}
	return out
}

// only returns s with the successors as the only authorities.
func (s state) only(next map[string]*x509.Certificate) state {
	out := state{}
	for name, g := range s {
		out[name] = g
		if n := next[name]; n != nil {
			out[name] = &generation{bundle: []*x509.Certificate{n}, cross: g.cross, signer: n}
		}
	}
	return out
}

// await waits until all machines have applied the state in a ConfigMap. It prints which machines it waits
// for.
func (r *Rotation) await(ctx context.Context, stored *v1.ConfigMap) error {
	s, err := parse(stored)
	if err != nil {
		return err
	}
	hash, deadline, last := s.hash(), r.Clock.Now().Add(r.Timeout), ""
	for {
		waiting, skipped, err := r.missing(ctx, hash)
		if err == nil && len(waiting) == 0 {
			if len(skipped) > 0 {
				fmt.Fprintf(r.Out, "Not waiting for machines that are not ready: %s. If they return after the last step, they "+
					"must be reset and join again.\n", strings.Join(skipped, ", "))
			}
			return nil
		}
		text := "  waiting for " + strings.Join(waiting, ", ")
		if err != nil {
			text = "  waiting for the API server: " + err.Error()
		}
		if text != last {
			fmt.Fprintln(r.Out, text)
			last = text
		}
		if !r.Clock.Now().Before(deadline) {
			if err == nil {
				err = fmt.Errorf("%w within %s: %s; see \"journalctl -u keelson-agent\" there, and run the command again to "+
					"continue; --force does not wait for machines that are not ready", errWaiting, r.Timeout,
					strings.Join(waiting, ", "))
			}
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.Clock.After(nodePoll):
		}
	}
}

// missing returns the machines that have not reported a state, sorted: those to wait for, and those
// that Force skips.
func (r *Rotation) missing(ctx context.Context, hash string) (waiting, skipped []string, err error) {
	client, err := r.Client()
	if err != nil {
		return nil, nil, err
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	for i := range list.Items {
		n := &list.Items[i]
		switch {
		case n.Annotations[Annotation] == hash:
		case r.Force && !nodes.IsReady(n):
			skipped = append(skipped, n.Name)
		default:
			waiting = append(waiting, n.Name)
		}
	}
	slices.Sort(waiting)
	slices.Sort(skipped)
	return waiting, skipped, nil
}
