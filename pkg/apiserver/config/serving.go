// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/spf13/pflag"

// defaultCertDir is where Kubernetes' server has the certificate that it made itself.
const defaultCertDir = "/var/run/kubernetes"

// Serving says how the server listens.
type Serving struct {
	// CertDir is where the certificate of a server that was given none is kept; empty:
	// in memory.
	CertDir string
	// DisableHTTP2 has clients speak HTTP/1.1 alone.
	DisableHTTP2 bool
	// MaxConnectionBytes is how many bytes per second go each way through an upgraded
	// connection to a kubelet, a pod or a service; not positive: as many as there are.
	MaxConnectionBytes int64
	// PermitAddressSharing and PermitPortSharing let others listen at the same address
	// and port (SO_REUSEADDR, SO_REUSEPORT).
	PermitAddressSharing, PermitPortSharing bool
}

func (s *Serving) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.CertDir, "cert-dir", defaultCertDir, "directory of apiserver.crt and apiserver.key, which are made when they are not there; not used with --tls-cert-file; empty: the certificate is made in memory")
	fs.BoolVar(&s.DisableHTTP2, "disable-http2-serving", false, "speak HTTP/1.1 alone")
	fs.Int64Var(&s.MaxConnectionBytes, "max-connection-bytes-per-sec", 0, "most bytes per second, each way, of an upgraded connection to a kubelet, a pod or a service (exec, attach, port-forward, proxy); 0: no limit")
	fs.BoolVar(&s.PermitAddressSharing, "permit-address-sharing", false, "listen with SO_REUSEADDR: at an address beside a process that listens at all, and without waiting for sockets in TIME_WAIT")
	fs.BoolVar(&s.PermitPortSharing, "permit-port-sharing", false, "listen with SO_REUSEPORT: at the same address and port as other processes that do")
}
