// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API version and the kind of configuration files.
const (
	APIVersion = "config.keelson.dev/v1alpha1"
	Kind       = "KeelsonConfiguration"
)

// The values of Network.Plugin and KeelsonConfiguration.Runtime.
const (
	PluginKeelson  = "keelson"
	PluginExternal = "external"
	RuntimeCrun    = "crun"
	RuntimeRunc    = "runc"
)

// Ports of a machine's programs that an operator cannot choose. The API server's port is a field of
// the configuration.
const (
	EtcdClientPort        = 2379
	EtcdPeerPort          = 2380
	AgentPort             = 7443 // the load balancer, at 127.0.0.1 only
	ProxyMetricsPort      = 10249
	KubeletPort           = 10250
	ProxyHealthPort       = 10256
	ControllerManagerPort = 10257
	SchedulerPort         = 10259
)

// KeelsonConfiguration is the configuration of a machine and of the cluster to which it belongs. The
// function [Fields] says what each field means.
type KeelsonConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	ClusterName     string    `json:"clusterName,omitempty"`
	Node            Node      `json:"node"`
	Network         Network   `json:"network"`
	APIServer       APIServer `json:"apiServer"`
	Kubelet         Kubelet   `json:"kubelet"`
	Runtime         string    `json:"runtime,omitempty"`
	EmulatedVersion string    `json:"emulatedVersion,omitempty"`
	Ingress         bool      `json:"ingress,omitempty"`

	// CertificateValidityPeriod and CACertificateValidityPeriod are durations in Go's notation.
	CertificateValidityPeriod   string `json:"certificateValidityPeriod,omitempty"`
	CACertificateValidityPeriod string `json:"caCertificateValidityPeriod,omitempty"`
}

// Node describes the machine as a node of the cluster.
type Node struct {
	Name      string            `json:"name,omitempty"`
	Addresses []string          `json:"addresses,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Taints    []string          `json:"taints,omitempty"`
}

// Network has the address ranges and names inside the cluster.
type Network struct {
	PodCIDRs              []string `json:"podCIDRs,omitempty"`
	ServiceCIDRs          []string `json:"serviceCIDRs,omitempty"`
	NodeCIDRs             []string `json:"nodeCIDRs,omitempty"`
	LoadBalancerAddresses []string `json:"loadBalancerAddresses,omitempty"`
	DNSDomain             string   `json:"dnsDomain,omitempty"`
	Plugin                string   `json:"plugin,omitempty"`
}

// APIServer has the addresses of the API server on this machine.
type APIServer struct {
	AdvertiseAddress string   `json:"advertiseAddress,omitempty"`
	Port             int      `json:"port,omitempty"`
	CertSANs         []string `json:"certSANs,omitempty"`
}

// Kubelet has the settings of the machine's kubelet.
type Kubelet struct {
	MaxPods      int               `json:"maxPods,omitempty"`
	EvictionHard map[string]string `json:"evictionHard,omitempty"`
}
