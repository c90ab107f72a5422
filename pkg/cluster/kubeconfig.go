// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/atomicfile"
	"keelson.dev/keelson/pkg/pki"
)

// administrators has the users for whom a kubeconfig is written. These kubeconfigs use the API
// server's port on the machine's loopback address.
var administrators = []struct {
	file string
	leaf pki.Leaf
}{
	{"admin", pki.Leaf{Name: "kubernetes-admin", Organizations: []string{"kubeadm:cluster-admins"}, Client: true}},
	{"super-admin", pki.Leaf{Name: "kubernetes-super-admin", Organizations: []string{"system:masters"}, Client: true}},
}

func machineServer(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

// clusterServer is the API server's address inside the cluster.
func (c *Config) clusterServer() string {
	return fmt.Sprintf("https://%s", netip.AddrPortFrom(c.IPFamily.primary().control, controlPort))
}

// makeKubeconfigs writes the kubeconfig files of the control plane's processes and of the
// administrators.
func makeKubeconfigs(d dirs, c *Config, now clock.Clock) error {
	for _, name := range []string{controllerManager, scheduler} {
		user := fileUser(d.pki(name+"-client.crt"), d.pki(name+"-client.key"))
		if err := writeKubeconfig(d, c.Name, d.kubeconfig(name), name, user, c.clusterServer()); err != nil {
			return fmt.Errorf("kubeconfig %s: %w", name, err)
		}
	}
	for _, a := range administrators {
		user, err := newUser(d, a.leaf, now)
		if err != nil {
			return fmt.Errorf("kubeconfig %s: %w", a.file, err)
		}
		if err := writeKubeconfig(d, c.Name, d.kubeconfig(a.file), a.leaf.Name, user, machineServer(c.Port)); err != nil {
			return fmt.Errorf("kubeconfig %s: %w", a.file, err)
		}
	}
	return nil
}

// newUser issues a client certificate to embed in a kubeconfig.
func newUser(d dirs, l pki.Leaf, now clock.Clock) (*api.AuthInfo, error) {
	ca, err := pki.ReadAuthority(d.pki("ca"))
	if err != nil {
		return nil, err
	}
	user := api.NewAuthInfo()
	user.ClientCertificateData, user.ClientKeyData, err = ca.Issue(l, now)
	return user, err
}

// fileUser returns a user that refers to the certificate by file name, so that clients reload the
// file when it changes.
func fileUser(certFile, keyFile string) *api.AuthInfo {
	user := api.NewAuthInfo()
	user.ClientCertificate, user.ClientKey = certFile, keyFile
	return user
}

func writeKubeconfig(d dirs, cluster, file, name string, user *api.AuthInfo, server string) error {
	cfg := api.NewConfig()
	entry := api.NewCluster()
	entry.Server = server
	var err error
	if entry.CertificateAuthorityData, err = os.ReadFile(d.pki("ca.crt")); err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	context := api.NewContext()
	context.Cluster, context.AuthInfo = cluster, name+"@"+cluster
	cfg.Clusters[cluster], cfg.AuthInfos[context.AuthInfo], cfg.Contexts[cluster] = entry, user, context
	cfg.CurrentContext = cluster
	return saveKubeconfig(cfg, file)
}

func saveKubeconfig(cfg *api.Config, file string) error {
	data, err := clientcmd.Write(*cfg)
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	return atomicfile.WriteDurably(file, data, 0o600)
}

// mergeKubeconfig adds the administrator's entries to the user's kubeconfig file, and makes the
// cluster's context the current context. Other entries do not change.
func mergeKubeconfig(admin, file string) error {
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

// unmergeKubeconfig removes a cluster's entries from the user's kubeconfig file. It deletes the
// file if no other entries are left.
func unmergeKubeconfig(cluster, file string) error {
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
