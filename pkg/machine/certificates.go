// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/machine/certs"
	"keelson.dev/keelson/pkg/provision"
)

// renewalInterval is how often the agent looks for certificates that expire soon. If they live for a
// short time, it looks renewalsInLife times in their lifetime.
const (
	renewalInterval = 12 * time.Hour
	renewalsInLife  = 12
)

// keepCertificates renews the certificates of this machine's control plane in time, until ctx ends.
// Programs read renewed files by themselves. Kubelets and the agent request the other certificates
// from the cluster.
func keepCertificates(ctx context.Context, d Deps) {
	for {
		interval := renewalInterval
		m, err := certificates()
		if err == nil {
			if life := m.Node.Cluster.Life.Leaf; life > 0 {
				interval = min(interval, life/renewalsInLife)
			}
			err = m.Renew(d.Clock)
		}
		if err != nil {
			d.Log.Error("Failed to renew certificates", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-d.Clock.After(interval):
		}
	}
}

// certificatesLock is the path of the file that locks the certificates and keys of this machine (see
// certs.Machine). It is in a directory that writeConfiguration makes.
const certificatesLock = state + "/certificates.lock"

var errForeignCertificates = errors.New("this machine's certificates are kubeadm's: list them with \"kubeadm certs " +
	"check-expiration\", and renew them with \"kubeadm certs renew\"; Keelson's programs read them again by themselves")

var errNotInCluster = errors.New("this machine is not part of a cluster")

// certificates describes the certificates of this machine.
func certificates() (*certs.Machine, error) {
	if NotAdopted() != nil {
		return nil, errForeignCertificates
	}
	c, err := readConfiguration()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNotInCluster
	}
	if err != nil {
		return nil, err
	}
	of, err := cluster(c)
	if err != nil {
		return nil, err
	}
	out := &certs.Machine{Node: node(c, of, false), EtcdFlags: argsFile(etcd), Lock: certificatesLock}
	if hasControlPlane() {
		out.Control = controlPlane(c, of)
	} else {
		out.Incomplete = notRejoining(rejoinJournal)
	}
	return out, nil
}

// Certificates returns all certificates of this machine, with the problems that they have.
func Certificates(clk clock.Clock) ([]provision.Certificate, error) {
	m, err := certificates()
	if err != nil {
		return nil, err
	}
	return m.List(clk.Now())
}

// RenewCertificates issues all certificates of this machine again, except those of authorities.
func RenewCertificates(ctx context.Context, clk clock.Clock) error {
	m, err := certificates()
	if err != nil {
		return err
	}
	client, err := kubeletClient()
	if err != nil {
		return err
	}
	return m.Reissue(ctx, client, clk)
}

// kubeletConfig returns the credentials of this machine's kubelet.
func kubeletConfig() (*rest.Config, error) {
	rc, err := clientcmd.BuildConfigFromFlags("", provision.KubeletKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubelet's kubeconfig: %w", err)
	}
	return rc, nil
}

// kubeletClient returns a client with the credentials of this machine's kubelet.
func kubeletClient() (kubernetes.Interface, error) {
	rc, err := kubeletConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return client, nil
}

// RotationOptions has the options of RotateAuthorities. certs.Rotation describes them.
type RotationOptions struct {
	KeepOld, Force bool
	Timeout        time.Duration
}

// RotateAuthorities replaces the authorities of the cluster to which this machine belongs, or continues
// that.
func RotateAuthorities(ctx context.Context, o RotationOptions, d Deps) error {
	m, err := certificates()
	if err != nil {
		return err
	}
	r := &certs.Rotation{
		Machine: m, KeepOld: o.KeepOld, Force: o.Force, Timeout: o.Timeout, Clock: d.Clock, Out: d.Out,
		Client: administratorClient,
	}
	return r.Run(ctx)
}

// administratorClient returns a client with the administrator's present credentials.
func administratorClient() (kubernetes.Interface, error) {
	a, err := newAdministrator(local)
	return a.client, err
}
