// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/spf13/pflag"

// defaultCertDir is the directory of the self-signed certificate, as in Kubernetes.
const defaultCertDir = "/var/run/kubernetes"

// Serving configures the listener and its TLS.
type Serving struct {
	// CertDir is the directory of the self-signed certificate, which is used if no certificate is
	// configured. If empty, the certificate is kept in memory only.
	CertDir string
	// If DisableHTTP2 is true, the server offers only HTTP/1.1 to clients.
	DisableHTTP2 bool
	// MaxConnectionBytes limits how many bytes per second an upgraded connection to a kubelet, pod or
	// service may carry in each direction. If it is not positive, there is no limit.
	MaxConnectionBytes int64
	// PermitAddressSharing and PermitPortSharing set SO_REUSEADDR and SO_REUSEPORT on the listening
	// socket.
	PermitAddressSharing, PermitPortSharing bool
}

func (s *Serving) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.CertDir, "cert-dir", defaultCertDir,
		"directory in which the server creates apiserver.crt and apiserver.key, a self-signed certificate, "+
			"if they do not exist; not used with --tls-cert-file; if empty, the certificate is kept in "+
			"memory only and is a new one after each start")
	fs.BoolVar(&s.DisableHTTP2, "disable-http2-serving", false, "serve only HTTP/1.1, not HTTP/2")
	fs.Int64Var(&s.MaxConnectionBytes, "max-connection-bytes-per-sec", 0,
		"maximum number of bytes per second, in each direction, of one upgraded connection to a kubelet, pod "+
			"or Service (exec, attach, port-forward, proxy); 0 means no limit")
	fs.BoolVar(&s.PermitAddressSharing, "permit-address-sharing", false,
		"set SO_REUSEADDR on the listening socket, so that the server can listen on its port while old "+
			"connections of this port are in the state TIME_WAIT")
	fs.BoolVar(&s.PermitPortSharing, "permit-port-sharing", false,
		"set SO_REUSEPORT on the listening socket, so that several processes can listen on the same address "+
			"and port")
}
