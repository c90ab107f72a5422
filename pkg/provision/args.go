// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"keelson.dev/keelson/pkg/outbound"
)

// APIServerArgs returns the flags of the API server.
func (p *ControlPlane) APIServerArgs() []string {
	d := p.Dir
	return slices.Concat(p.storeArgs(), []string{
		"--bind-address=" + p.Bind, fmt.Sprintf("--secure-port=%d", p.Port), "--advertise-address=" + p.Advertise,
		"--client-ca-file=" + d.PKI("ca.crt"),
		"--tls-cert-file=" + d.PKI("apiserver.crt"), "--tls-private-key-file=" + d.PKI("apiserver.key"),
		"--service-account-key-file=" + d.PKI("sa.pub"), "--service-account-signing-key-file=" + d.PKI("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc." + p.Cluster.Domain,
		"--service-cluster-ip-range=" + p.Cluster.serviceRanges(), "--authorization-mode=Node,RBAC",
		"--kubelet-client-certificate=" + d.PKI("apiserver-kubelet-client.crt"), "--kubelet-client-key=" +
			d.PKI("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority=" + d.PKI(ServingAuthority+".crt"),
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--resource-metrics",
		"--requestheader-client-ca-file=" + d.PKI("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + d.PKI("front-proxy-client.crt"), "--proxy-client-key-file=" +
			d.PKI("front-proxy-client.key"),
		"--enable-aggregator-routing=true", "--allow-privileged=true", "--enable-bootstrap-token-auth=true",
	}, p.machineArgs(), p.hardenedAPIServer(), p.Cluster.emulation())
}

// machineArgs returns the API server's flags on machines: that for "ctl backup", and those that protect the
// store. Clusters of "ctl cluster" do not get them, because they can start with programs of the previous
// release, which do not know these flags.
func (p *ControlPlane) machineArgs() []string {
	if !p.Cluster.Machines {
		return nil
	}
	return []string{
		"--serve-store-snapshots", "--store-warning-percent=80", "--store-refusal-percent=95", "--store-defragmentation",
	}
}

// storeArgs returns the API server's flags for its store.
func (p *ControlPlane) storeArgs() []string {
	if len(p.EtcdServers) == 0 {
		return []string{"--data-dir=" + p.Store}
	}
	return []string{
		"--etcd-servers=" + strings.Join(p.EtcdServers, ","), "--etcd-cafile=" + p.Dir.PKI(p.EtcdFiles.Authority+".crt"),
		"--etcd-certfile=" + p.Dir.PKI(EtcdClient+".crt"), "--etcd-keyfile=" + p.Dir.PKI(EtcdClient+".key"),
	}
}

// hardenedAPIServer returns the API server's flags for security whose values differ from the
// program's defaults.
func (p *ControlPlane) hardenedAPIServer() []string {
	deny := []string{outbound.SpecialName}
	for _, each := range p.Deny {
		deny = append(deny, netip.PrefixFrom(each, each.BitLen()).String())
	}
	out := append(servingArgs(),
		"--anonymous-auth=false",
		"--service-account-lookup=true", "--service-account-extend-token-expiration=false",
		"--enable-admission-plugins=NodeRestriction,NodeOwnership,DenyServiceExternalIPs,EndpointOwnership,IngressHosts",
	)
	if p.Cluster.NodeRanges != "" {
		out = append(out, "--node-address-ranges="+p.Cluster.NodeRanges)
	}
	return append(out,
		// A webhook, APIService or Node object must not make the API server connect to itself, to
		// its machine, or to a cloud's metadata service.
		"--outbound-deny="+strings.Join(deny, ","),
		"--encryption-provider-config="+p.Dir.EncryptionKeys(), "--encryption-provider-config-automatic-reload=true",
		"--audit-policy-file="+p.Dir.auditPolicy(), "--audit-log-path="+p.AuditLog,
		fmt.Sprintf("--audit-log-maxage=%d", auditDays), fmt.Sprintf("--audit-log-maxbackup=%d", auditFiles),
		fmt.Sprintf("--audit-log-maxsize=%d", auditSize),
	)
}

// ControllerManagerArgs returns the flags of the controller manager.
func (p *ControlPlane) ControllerManagerArgs() []string {
	out := []string{
		"--kubeconfig=" + p.Dir.Kubeconfig(ControllerManager),
		"--allocate-node-cidrs=true", "--cluster-cidr=" + p.Cluster.podRanges(),
		"--service-cluster-ip-range=" + p.Cluster.serviceRanges(),
	}
	if p.Cluster.LoadBalancers != "" {
		out = append(out, "--load-balancer-addresses="+p.Cluster.LoadBalancers)
	}
	out = append(out,
		"--ingress-service-account="+ingressAccount,
		"--service-account-private-key-file="+p.Dir.PKI("sa.key"), "--root-ca-file="+p.Dir.PKI("ca.crt"),
		"--use-service-account-credentials=true", fmt.Sprintf("--leader-elect=%t", p.LeaderElect),
		"--approve-kubelet-serving=true", "--protect-node-identities=true",
	)
	if p.Cluster.Machines {
		// Expired join tokens are deleted, because their Secrets can have encrypted keys.
		out = append(out, "--approve-proxy-clients=true", "--controllers=*,token-cleaner-controller")
	}
	if life := p.Cluster.Life.Leaf; life > 0 {
		out = append(out, "--cluster-signing-duration="+life.String())
	}
	return slices.Concat(out, p.signerArgs(), p.managerArgs(ControllerManager), p.Cluster.emulation())
}

// signerArgs returns the controller manager's flags that set the certificate authority of each
// signer of CertificateSigningRequests.
func (p *ControlPlane) signerArgs() []string {
	var out []string
	for signer, by := range map[string]string{
		"kubelet-serving": ServingAuthority, "kubelet-client": "ca", "kube-apiserver-client": "ca", "legacy-unknown": "ca",
	} {
		out = append(out, "--cluster-signing-"+signer+"-cert-file="+p.Dir.PKI(by+".crt"), "--cluster-signing-"+
			signer+"-key-file="+p.Dir.PKI(by+".key"))
	}
	slices.Sort(out)
	return out
}

// SchedulerArgs returns the flags of the scheduler.
func (p *ControlPlane) SchedulerArgs() []string {
	out := []string{"--config=" + p.Dir.schedulerConfig()}
	if p.LeaderElect { // the file may be from the time when there was one control plane
		out = append(out, "--leader-elect=true")
	}
	return slices.Concat(out, p.managerArgs(Scheduler), p.Cluster.emulation())
}

// managerArgs returns the flags of the server that the controller manager or the scheduler runs.
// It listens at a loopback address, so only processes in the same network namespace can connect to
// it.
func (p *ControlPlane) managerArgs(name string) []string {
	return append(servingArgs(), "--bind-address="+p.Local,
		"--tls-cert-file="+p.Dir.PKI(name+".crt"), "--tls-private-key-file="+p.Dir.PKI(name+".key"),
		"--client-ca-file="+p.Dir.PKI("ca.crt"))
}

// EmulatedVersionFlag is the flag for the Kubernetes release that a process of the control plane
// emulates, without its value. It is the last flag.
const EmulatedVersionFlag = "--emulated-version="

func (c *Cluster) emulation() []string {
	if c.EmulatedVersion == "" {
		return nil
	}
	return []string{EmulatedVersionFlag + c.EmulatedVersion}
}
