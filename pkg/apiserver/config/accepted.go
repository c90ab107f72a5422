// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
)

// accepted holds the values of flags of Kubernetes' API server that this server accepts but does
// not use, so that a command line for Kubernetes is valid here too. The values are validated. The
// help texts say why the flags have no effect.
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
	fs.DurationVar(&a.kubeletTimeout, "kubelet-timeout", 5*time.Second,
		"no effect, as in Kubernetes: a request to a kubelet may take as long as the request that caused it")
	fs.UintVar(&a.kubeletPort, "kubelet-port", 10250, "no effect: the port of a kubelet is read from its node")
	fs.UintVar(&a.kubeletReadOnlyPort, "kubelet-read-only-port", 10255, "no effect: kubelets have no read-only port")
	for flag, message := range map[string]string{
		"kubelet-port":           "kubelet-port is deprecated and will be removed.",
		"kubelet-read-only-port": "kubelet-read-only-port is deprecated and will be removed.",
	} {
		_ = fs.MarkDeprecated(flag, message) // cannot fail: the flag exists
	}
	fs.StringVar(&a.peerCA, "peer-ca-file", "", "CA of the other API servers; no effect: all servers of a "+
		"cluster serve the same APIs and do not forward requests to each other")
	fs.StringVar(&a.peerIP, "peer-advertise-ip", "", "address for other API servers; no effect, see --peer-ca-file")
	fs.StringVar(&a.peerPort, "peer-advertise-port", "", "port for other API servers; no effect, see --peer-ca-file")
	const election = "; no effect: components elect their leaders themselves"
	fs.DurationVar(&a.leaseDuration, "coordinated-leadership-lease-duration", a.leaseDuration,
		"duration of the Lease of a leader chosen by the server"+election)
	fs.DurationVar(&a.renewDeadline, "coordinated-leadership-renew-deadline", a.renewDeadline,
		"how long a leader chosen by the server tries to renew its Lease"+election)
	fs.DurationVar(&a.retryPeriod, "coordinated-leadership-retry-period", a.retryPeriod,
		"time between attempts of components to become or stay leader"+election)
}

func (a *accepted) validate(add func(format string, args ...any)) {
	if a.leaseDuration <= a.renewDeadline {
		add("--coordinated-leadership-lease-duration must be greater than --coordinated-leadership-renew-deadline")
	}
	if a.renewDeadline <= a.retryPeriod {
		add("--coordinated-leadership-renew-deadline must be greater than --coordinated-leadership-retry-period")
	}
}

// validateUse returns an error for the first value that Kubernetes accepts and this server does not
// support.
func (a *accepted) validateUse(proxyCert string) error {
	if a.peerCA != "" && proxyCert == "" {
		return errors.New("error building peer proxy handler, proxy-cert-file not specified")
	}
	return nil
}
