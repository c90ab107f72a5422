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
		"no effect, as in Kubernetes: the API server's request to a kubelet may take as long as the client's "+
			"request that caused it")
	fs.UintVar(&a.kubeletPort, "kubelet-port", 10250,
		"no effect: the API server reads the port of a kubelet from its Node object")
	fs.UintVar(&a.kubeletReadOnlyPort, "kubelet-read-only-port", 10255,
		"no effect: the API server does not use the read-only port of kubelets")
	for flag, message := range map[string]string{
		"kubelet-port":           "kubelet-port is deprecated and will be removed.",
		"kubelet-read-only-port": "kubelet-read-only-port is deprecated and will be removed.",
	} {
		_ = fs.MarkDeprecated(flag, message) // cannot fail: the flag exists
	}
	fs.StringVar(&a.peerCA, "peer-ca-file", "",
		"file with the CA certificates of the other API servers; no effect, because all API servers of a "+
			"cluster serve the same APIs and do not forward requests to each other")
	fs.StringVar(&a.peerIP, "peer-advertise-ip", "",
		"IP address at which other API servers reach this one; no effect, because API servers do not forward "+
			"requests to each other")
	fs.StringVar(&a.peerPort, "peer-advertise-port", "",
		"port at which other API servers reach this one; no effect, because API servers do not forward "+
			"requests to each other")
	const election = "; no effect: the processes elect their leaders themselves"
	fs.DurationVar(&a.leaseDuration, "coordinated-leadership-lease-duration", a.leaseDuration,
		"how long the Lease of a leader that the API server has chosen is valid"+election)
	fs.DurationVar(&a.renewDeadline, "coordinated-leadership-renew-deadline", a.renewDeadline,
		"how long a leader that the API server has chosen tries to renew its Lease"+election)
	fs.DurationVar(&a.retryPeriod, "coordinated-leadership-retry-period", a.retryPeriod,
		"time between two attempts of a process to become or stay leader"+election)
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
