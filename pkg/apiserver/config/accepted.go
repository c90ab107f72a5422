// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
)

// accepted are flags of Kubernetes' server whose subject there is not in this one: they are checked, that
// one command line starts either, and their usage says why they have no effect.
type accepted struct {
	kubeletTimeout                            time.Duration
	kubeletPort, kubeletReadOnlyPort          uint
	peerCA, peerIP, peerPort                  string
	leaseDuration, renewDeadline, retryPeriod time.Duration
}

func defaultAccepted() accepted {
	return accepted{leaseDuration: 15 * time.Second, renewDeadline: 10 * time.Second, retryPeriod: 2 * time.Second}
}

func (a *accepted) addFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&a.kubeletTimeout, "kubelet-timeout", 5*time.Second, "without effect, as in Kubernetes: requests to kubelets take as long as those that they are made for")
	fs.UintVar(&a.kubeletPort, "kubelet-port", 10250, "without effect: nodes say where their kubelets are")
	fs.UintVar(&a.kubeletReadOnlyPort, "kubelet-read-only-port", 10255, "without effect: kubelets have no such port")
	for flag, message := range map[string]string{
		"kubelet-port":           "kubelet-port is deprecated and will be removed.",
		"kubelet-read-only-port": "kubelet-read-only-port is deprecated and will be removed.",
	} {
		_ = fs.MarkDeprecated(flag, message) // which there is
	}
	fs.StringVar(&a.peerCA, "peer-ca-file", "", "authority of other servers; without effect: all servers of a cluster serve the same APIs, and none asks another")
	fs.StringVar(&a.peerIP, "peer-advertise-ip", "", "address for other servers; without effect, as --peer-ca-file")
	fs.StringVar(&a.peerPort, "peer-advertise-port", "", "port for other servers; without effect, as --peer-ca-file")
	const election = "; without effect: components elect their leaders themselves"
	fs.DurationVar(&a.leaseDuration, "coordinated-leadership-lease-duration", a.leaseDuration, "life of the Lease of a leader that the server has chosen"+election)
	fs.DurationVar(&a.renewDeadline, "coordinated-leadership-renew-deadline", a.renewDeadline, "how long such a leader tries to renew its Lease"+election)
	fs.DurationVar(&a.retryPeriod, "coordinated-leadership-retry-period", a.retryPeriod, "time between tries"+election)
}

func (a *accepted) validate(add func(format string, args ...any)) {
	if a.leaseDuration <= a.renewDeadline {
		add("--coordinated-leadership-lease-duration must be greater than --coordinated-leadership-renew-deadline")
	}
	if a.renewDeadline <= a.retryPeriod {
		add("--coordinated-leadership-renew-deadline must be greater than --coordinated-leadership-retry-period")
	}
}

// validateUse tells what cannot be done though it may be said.
func (a *accepted) validateUse(proxyCert string) error {
	if a.peerCA != "" && proxyCert == "" {
		return errors.New("error building peer proxy handler, proxy-cert-file not specified")
	}
	return nil
}
