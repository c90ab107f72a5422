// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentconfig "k8s.io/component-base/config/v1alpha1"
	schedulerconfig "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/atomicfile"
)

// Dir is the directory with the certificates, kubeconfig files and configuration files of a control
// plane: /etc/kubernetes on a machine. Its methods return the paths of these files.
type Dir string

func (d Dir) file(name string) string { return filepath.Join(string(d), name) }

// PKI returns the path of a file with a certificate or key. name includes the extension.
func (d Dir) PKI(name string) string { return filepath.Join(string(d), "pki", name) }

// Kubeconfig returns the path of a kubeconfig file: of ControllerManager, Scheduler, or of the users
// "admin" and "super-admin".
func (d Dir) Kubeconfig(name string) string { return d.file(name + ".conf") }

// EncryptionKeys returns the path of the file that [ReadEncryptionKeys] reads.
func (d Dir) EncryptionKeys() string { return d.file("encryption.yaml") }

func (d Dir) auditPolicy() string     { return d.file("audit-policy.yaml") }
func (d Dir) schedulerConfig() string { return d.file("scheduler.yaml") }

// ControlPlane describes an API server, a controller manager and a scheduler.
//
// Several control planes in one network namespace can share a Dir. Then Hosts has the names and
// addresses of all of them.
type ControlPlane struct {
	Cluster *Cluster
	Dir     Dir
	// AuditLog is the path of the API server's audit log.
	AuditLog string

	// Store is the directory of the store that the API server contains if EtcdServers is empty.
	Store string
	// EtcdServers has the URLs of a separate etcd.
	EtcdServers []string
	// EtcdFiles has the names of etcd's certificates. It is needed if there are EtcdServers.
	EtcdFiles EtcdFiles

	// Bind is the address at which the API server listens, and Advertise the address at which pods
	// reach it.
	Bind, Advertise string
	Port            int
	// Local is the loopback address at which the controller manager and the scheduler listen.
	Local string
	Hosts Hosts
	// Deny has addresses to which the API server does not connect for webhooks, extension servers
	// and nodes, in addition to loopback, link-local and similar addresses. A control plane's address
	// that is also a node's must not be among them: the API server could not reach the kubelet.
	Deny []netip.Addr
	// LeaderElect is true if there may be other control planes.
	LeaderElect bool

	// Server is the API server's URL for the controller manager and the scheduler, and AdminServer
	// the URL for administrators.
	Server, AdminServer string
}

// Hosts has the names and addresses in serving certificates, in addition to those that the
// description has anyway: localhost, Advertise, Local, and those of the Service kubernetes.
type Hosts struct {
	APIServer []string
	Managers  []string // of the controller manager and the scheduler
	Etcd      []string // of the etcd members that use the certificate
}

// WriteConfiguration writes the control plane's configuration files and the first encryption key,
// and makes the directory of the audit log. It keeps existing files, because the operator may have
// changed them.
func (p *ControlPlane) WriteConfiguration() error {
	if err := p.makeEncryptionKeys(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.AuditLog), 0o700); err != nil {
		return fmt.Errorf("directory of the audit log: %w", err)
	}
	cfg := &schedulerconfig.KubeSchedulerConfiguration{
		TypeMeta:         metav1.TypeMeta{APIVersion: "kubescheduler.config.k8s.io/v1", Kind: "KubeSchedulerConfiguration"},
		ClientConnection: componentconfig.ClientConnectionConfiguration{Kubeconfig: p.Dir.Kubeconfig(Scheduler)},
		LeaderElection:   componentconfig.LeaderElectionConfiguration{LeaderElect: &p.LeaderElect},
	}
	data, err := yaml.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("scheduler configuration: %w", err)
	}
	for file, content := range map[string][]byte{p.Dir.auditPolicy(): []byte(auditPolicy), p.Dir.schedulerConfig(): data} {
		if exists(file) {
			continue
		}
		if err := atomicfile.WriteDurably(file, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// makeEncryptionKeys creates the first encryption key if there is no key yet. Secrets that an older
// version stored unencrypted remain readable.
func (p *ControlPlane) makeEncryptionKeys() error {
	file := p.Dir.EncryptionKeys()
	if exists(file) {
		return os.Chmod(file, 0o600)
	}
	e := &EncryptionKeys{Plain: exists(p.Store)}
	if err := e.Add(); err != nil {
		return err
	}
	_, err := e.Write(file)
	return err
}
