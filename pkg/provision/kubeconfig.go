// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/pki"
)

// administrators has the users for whom a kubeconfig is written.
var administrators = []struct {
	file string
	leaf pki.Leaf
}{
	{"admin", pki.Leaf{Name: "kubernetes-admin", Organizations: []string{"kubeadm:cluster-admins"}, Client: true}},
	{"super-admin", pki.Leaf{Name: "kubernetes-super-admin", Organizations: []string{"system:masters"}, Client: true}},
}

// WriteKubeconfigs writes the kubeconfig files of the controller manager, the scheduler and the
// administrators. It issues new certificates for the administrators.
func (p *ControlPlane) WriteKubeconfigs(clk clock.Clock) error {
	authority, err := pki.ReadAuthority(p.Dir.PKI("ca"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(p.Dir.PKI("ca.crt"))
	if err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	for _, name := range []string{ControllerManager, Scheduler} {
		user := fileUser(p.Dir.PKI(name+"-client.crt"), p.Dir.PKI(name+"-client.key"))
		cfg := p.Cluster.fileKubeconfig(p.Server, p.Dir.PKI("ca.crt"), name, user)
		if err := saveKubeconfig(cfg, p.Dir.Kubeconfig(name)); err != nil {
			return fmt.Errorf("kubeconfig %s: %w", name, err)
		}
	}
	for _, a := range administrators {
		user := api.NewAuthInfo()
		a.leaf.Life = p.Cluster.Life.Leaf
		if user.ClientCertificateData, user.ClientKeyData, err = authority.Issue(a.leaf, clk); err != nil {
			return fmt.Errorf("kubeconfig %s: %w", a.file, err)
		}
		cfg := p.Cluster.kubeconfig(p.AdminServer, ca, a.leaf.Name, user)
		if err := saveKubeconfig(cfg, p.Dir.Kubeconfig(a.file)); err != nil {
			return fmt.Errorf("kubeconfig %s: %w", a.file, err)
		}
	}
	return nil
}

// fileUser returns a user that refers to the certificate by file name, so that clients reload the
// file when it changes.
func fileUser(certFile, keyFile string) *api.AuthInfo {
	user := api.NewAuthInfo()
	user.ClientCertificate, user.ClientKey = certFile, keyFile
	return user
}

// kubeconfig returns a kubeconfig for one user. server is the API server's URL, and ca the
// authority's certificate.
func (c *Cluster) kubeconfig(server string, ca []byte, name string, user *api.AuthInfo) *api.Config {
	return newKubeconfig(c.Name, server, ca, name+"@"+c.Name, user)
}

// fileKubeconfig returns a kubeconfig for one user of a program. It refers to the file with the
// authorities by name, so that the program reloads the file when it changes.
func (c *Cluster) fileKubeconfig(server, caFile, name string, user *api.AuthInfo) *api.Config {
	cfg := c.kubeconfig(server, nil, name, user)
	cfg.Clusters[c.Name].CertificateAuthority = caFile
	return cfg
}

func newKubeconfig(cluster, server string, ca []byte, name string, user *api.AuthInfo) *api.Config {
	entry := api.NewCluster()
	entry.Server, entry.CertificateAuthorityData = server, ca
	context := api.NewContext()
	context.Cluster, context.AuthInfo = cluster, name
	cfg := api.NewConfig()
	cfg.Clusters[cluster], cfg.AuthInfos[name], cfg.Contexts[cluster], cfg.CurrentContext = entry, user, context, cluster
	return cfg
}

func saveKubeconfig(cfg *api.Config, file string) error {
	data, err := clientcmd.Write(*cfg)
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	return atomicfile.WriteDurably(file, data, 0o600)
}

// MergeKubeconfig adds the administrator's entries to the user's kubeconfig file, and makes the
// cluster's context the current context. Other entries do not change.
func MergeKubeconfig(admin, file string) error {
	from, err := clientcmd.LoadFromFile(admin)
	if err != nil {
		return fmt.Errorf("administrator's kubeconfig: %w", err)
	}
	into := api.NewConfig()
	if exists(file) {
		if into, err = clientcmd.LoadFromFile(file); err != nil {
			return fmt.Errorf("kubeconfig: %w", err)
		}
	}
	for k, v := range from.Clusters {
		into.Clusters[k] = v
	}
	for k, v := range from.AuthInfos {
		into.AuthInfos[k] = v
	}
	for k, v := range from.Contexts {
		into.Contexts[k] = v
	}
	into.CurrentContext = from.CurrentContext
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("directory of kubeconfig: %w", err)
	}
	return saveKubeconfig(into, file)
}

// UnmergeKubeconfig removes a cluster's entries from the user's kubeconfig file. It deletes the
// file if no other entries are left.
func UnmergeKubeconfig(cluster, file string) error {
	if file == "" || !exists(file) {
		return nil
	}
	cfg, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	context := cfg.Contexts[cluster]
	if context == nil {
		return nil
	}
	delete(cfg.Contexts, cluster)
	delete(cfg.Clusters, context.Cluster)
	delete(cfg.AuthInfos, context.AuthInfo)
	if cfg.CurrentContext == cluster {
		cfg.CurrentContext = ""
	}
	if len(cfg.Contexts)+len(cfg.Clusters)+len(cfg.AuthInfos) == 0 {
		return os.Remove(file)
	}
	return saveKubeconfig(cfg, file)
}
