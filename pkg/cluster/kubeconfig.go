// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"keelson.dev/api/clock"
)

// users are the members of the control plane that have a kubeconfig of their
// own, by the names that the bootstrap roles are bound to.
var users = []struct {
	file string
	leaf leaf
}{
	{"admin", leaf{name: "kubernetes-admin", organizations: []string{"kubeadm:cluster-admins"}, client: true}},
	{"super-admin", leaf{name: "kubernetes-super-admin", organizations: []string{"system:masters"}, client: true}},
	{"controller-manager", leaf{name: "system:kube-controller-manager", client: true}},
	{"scheduler", leaf{name: "system:kube-scheduler", client: true}},
}

func machineServer(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

func clusterServer() string { return fmt.Sprintf("https://%s:%d", controlAddress, controlPort) }

// makeKubeconfigs makes what is missing of the control plane's kubeconfig files,
// and the administrators' ones for the port that the machine reaches.
func makeKubeconfigs(d dirs, c *Config, now clock.Clock) error {
	for _, u := range users {
		server := clusterServer()
		admin := u.file == "admin" || u.file == "super-admin"
		if admin {
			server = machineServer(c.Port)
		}
		if !admin && exists(d.kubeconfig(u.file)) {
			continue
		}
		if err := makeKubeconfig(d, c.Name, d.kubeconfig(u.file), u.leaf, server, now); err != nil {
			return fmt.Errorf("kubeconfig %s: %w", u.file, err)
		}
	}
	return nil
}

// makeKubeconfig issues a client certificate and writes a kubeconfig with it.
func makeKubeconfig(d dirs, cluster, file string, l leaf, server string, now clock.Clock) error {
	ca, err := readPair(d.pki("ca"))
	if err != nil {
		return err
	}
	certFile, keyFile := file+".crt", file+".key"
	if err := issue(ca, l, now, certFile, keyFile); err != nil {
		return err
	}
	defer os.Remove(certFile)
	defer os.Remove(keyFile)
	cfg := api.NewConfig()
	entry := api.NewCluster()
	entry.Server = server
	if entry.CertificateAuthorityData, err = os.ReadFile(d.pki("ca.crt")); err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	user := api.NewAuthInfo()
	if user.ClientCertificateData, err = os.ReadFile(certFile); err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	if user.ClientKeyData, err = os.ReadFile(keyFile); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	context := api.NewContext()
	context.Cluster, context.AuthInfo = cluster, l.name+"@"+cluster
	cfg.Clusters[cluster], cfg.AuthInfos[context.AuthInfo], cfg.Contexts[cluster] = entry, user, context
	cfg.CurrentContext = cluster
	return saveKubeconfig(cfg, file)
}

func saveKubeconfig(cfg *api.Config, file string) error {
	data, err := clientcmd.Write(*cfg)
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	return writeFile(file, data, 0o600)
}

// mergeKubeconfig adds the administrator's entries to a person's kubeconfig and
// makes them current; other entries stay.
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

// unmergeKubeconfig takes a cluster's entries out of a person's kubeconfig. A
// file that held nothing else goes.
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
