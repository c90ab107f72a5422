// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentconfig "k8s.io/component-base/config/v1alpha1"
	schedulerconfig "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/atomicfile"
)

// Names of the control plane's processes.
const (
	apiserver         = "apiserver"
	controllerManager = "controller-manager"
	scheduler         = "scheduler"
)

func proxyClient() componentconfig.ClientConnectionConfiguration {
	return componentconfig.ClientConnectionConfiguration{Kubeconfig: proxyConf}
}

// makeControlPlane writes the control plane's configuration files.
func makeControlPlane(c *Config) error {
	if err := os.MkdirAll(filepath.Dir(c.dirs().auditLog("")), 0o700); err != nil {
		return fmt.Errorf("directory of the audit log: %w", err)
	}
	// Keep an existing audit policy, because the operator may have changed it.
	if policy := c.dirs().file("audit-policy.yaml"); !exists(policy) {
		if err := atomicfile.WriteDurably(policy, []byte(auditPolicy), 0o600); err != nil {
			return err
		}
	}
	elect := c.replicated()
	cfg := &schedulerconfig.KubeSchedulerConfiguration{
		TypeMeta:         metav1.TypeMeta{APIVersion: "kubescheduler.config.k8s.io/v1", Kind: "KubeSchedulerConfiguration"},
		ClientConnection: componentconfig.ClientConnectionConfiguration{Kubeconfig: c.dirs().kubeconfig(scheduler)},
		LeaderElection:   componentconfig.LeaderElectionConfiguration{LeaderElect: &elect},
	}
	data, err := yaml.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("scheduler configuration: %w", err)
	}
	file := c.dirs().file("scheduler.yaml")
	if exists(file) {
		return nil
	}
	return atomicfile.WriteDurably(file, data, 0o600)
}

// controlProcesses returns the control plane's processes in the order in which they are started.
// machine is the socket on the machine's loopback address. A single API server inherits that
// socket; several API servers are reached through a balancer, which has the socket instead.
func controlProcesses(c *Config, machine *os.File) []process {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=/root", "LANG=C.UTF-8"}
	if !c.replicated() {
		out := planeProcesses(c, c.replicas()[0], env)
		// As in systemd's socket activation, the first inherited socket has descriptor 3.
		out[0].env, out[0].inherit = append([]string{"LISTEN_FDS=1"}, env...), []*os.File{machine}
		return out
	}
	out := etcdProcesses(c, env)
	for _, r := range c.replicas() {
		out = append(out, planeProcesses(c, r, env)...)
	}
	return out
}

// planeProcesses returns the processes of one control plane, the API server first.
func planeProcesses(c *Config, r replica, env []string) []process {
	d := c.dirs()
	one := func(name string, args ...string) process {
		return process{
			name: name + r.suffix, log: d.log(name + r.suffix), env: env, attr: controlAttr(),
			argv: emulating(append([]string{filepath.Join(c.BinDir, name)}, args...), c.EmulatedVersion),
		}
	}
	return []process{
		one(apiserver, apiserverArgs(c, r)...),
		one(controllerManager, append([]string{
			"--kubeconfig=" + d.kubeconfig(controllerManager),
			"--allocate-node-cidrs=true", "--cluster-cidr=" + c.IPFamily.podCIDRs(),
			"--service-cluster-ip-range=" + c.IPFamily.serviceCIDRs(),
			"--load-balancer-addresses=" + cmp.Or(c.LoadBalancers, c.IPFamily.LoadBalancers()),
			"--ingress-service-account=" + ingressAccount,
			"--service-account-private-key-file=" + d.pki("sa.key"), "--root-ca-file=" + d.pki("ca.crt"),
			"--use-service-account-credentials=true", fmt.Sprintf("--leader-elect=%t", c.replicated()),
			"--approve-kubelet-serving=true", "--protect-node-identities=true",
		}, append(signerFlags(d), hardenedManager(d, controllerManager, r.local)...)...)...),
		one(scheduler, append([]string{"--config=" + d.file("scheduler.yaml")},
			hardenedManager(d, scheduler, r.local)...)...),
	}
}

// signerFlags returns the controller manager's flags that set the certificate authority of each
// signer of CertificateSigningRequests.
func signerFlags(d dirs) []string {
	var out []string
	for signer, by := range map[string]string{
		"kubelet-serving": kubeletAuthority, "kubelet-client": "ca", "kube-apiserver-client": "ca", "legacy-unknown": "ca",
	} {
		out = append(out, "--cluster-signing-"+signer+"-cert-file="+d.pki(by+".crt"), "--cluster-signing-"+
			signer+"-key-file="+d.pki(by+".key"))
	}
	slices.Sort(out)
	return out
}

func apiserverArgs(c *Config, r replica) []string {
	d := c.dirs()
	return slices.Concat(storeArgs(c), []string{
		"--bind-address=" + r.bind, fmt.Sprintf("--secure-port=%d", controlPort), "--advertise-address=" + r.advertise,
		"--client-ca-file=" + d.pki("ca.crt"),
		"--tls-cert-file=" + d.pki("apiserver.crt"), "--tls-private-key-file=" + d.pki("apiserver.key"),
		"--service-account-key-file=" + d.pki("sa.pub"), "--service-account-signing-key-file=" + d.pki("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc." + clusterDomain,
		"--service-cluster-ip-range=" + c.IPFamily.serviceCIDRs(), "--authorization-mode=Node,RBAC",
		"--kubelet-client-certificate=" + d.pki("apiserver-kubelet-client.crt"), "--kubelet-client-key=" +
			d.pki("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority=" + d.pki(kubeletAuthority+".crt"),
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--resource-metrics",
		"--requestheader-client-ca-file=" + d.pki("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + d.pki("front-proxy-client.crt"), "--proxy-client-key-file=" +
			d.pki("front-proxy-client.key"),
		"--enable-aggregator-routing=true", "--allow-privileged=true", "--enable-bootstrap-token-auth=true",
	}, hardenedAPIServer(c, r))
}
