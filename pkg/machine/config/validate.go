// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/features"
	"keelson.dev/keelson/pkg/nodeclaims"
)

// Validate returns all faults of a configuration with defaults.
func Validate(c *KeelsonConfiguration) field.ErrorList {
	v := &validator{c: c}
	v.check(field.NewPath("clusterName"), c.ClusterName, validation.IsDNS1123Label)
	v.node(field.NewPath("node"))
	v.network(field.NewPath("network"))
	v.apiServer(field.NewPath("apiServer"))
	v.kubelet(field.NewPath("kubelet"))
	v.oneOf(field.NewPath("runtime"), c.Runtime, RuntimeCrun, RuntimeRunc)
	if c.EmulatedVersion != "" {
		v.oneOf(field.NewPath("emulatedVersion"), c.EmulatedVersion, features.Emulatable()...)
	}
	v.lifetime(field.NewPath("certificateValidityPeriod"), c.CertificateValidityPeriod)
	v.lifetime(field.NewPath("caCertificateValidityPeriod"), c.CACertificateValidityPeriod)
	v.clashes()
	return v.faults
}

// validator collects the faults of a configuration.
type validator struct {
	c      *KeelsonConfiguration
	faults field.ErrorList
	ranges []used // for clashes
}

func (v *validator) add(faults ...*field.Error) { v.faults = append(v.faults, faults...) }

func (v *validator) invalidf(at *field.Path, value any, format string, args ...any) {
	v.add(field.Invalid(at, value, fmt.Sprintf(format, args...)))
}

// check calls a function of package validation, which returns what is wrong with a value.
func (v *validator) check(at *field.Path, value string, f func(string) []string) {
	if value == "" {
		v.add(field.Required(at, ""))
		return
	}
	for _, wrong := range f(value) {
		v.invalidf(at, value, "%s", wrong)
	}
}

func (v *validator) oneOf(at *field.Path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		v.add(field.NotSupported(at, value, allowed))
	}
}

// minLifetime is the shortest lifetime of certificates. Programs reload renewed certificates within ten
// seconds, and the authority in a kubeconfig within five minutes.
const minLifetime = time.Minute

// lifetime validates the lifetime of certificates. It is empty if it has the default.
func (v *validator) lifetime(at *field.Path, text string) {
	if text == "" {
		return
	}
	if d, err := time.ParseDuration(text); err != nil || d < minLifetime {
		v.invalidf(at, text, "must be a duration such as 8760h, of at least %s", minLifetime)
	}
}

func (v *validator) node(at *field.Path) {
	n := v.c.Node
	v.check(at.Child("name"), n.Name, validation.IsDNS1123Subdomain)
	// The name becomes the value of the label kubernetes.io/hostname.
	if len(n.Name) > validation.LabelValueMaxLength {
		v.add(field.TooLong(at.Child("name"), n.Name, validation.LabelValueMaxLength))
	}
	if why := (nodeclaims.Reserved{}).Name(n.Name); why != "" {
		v.invalidf(at.Child("name"), n.Name, "no node can have this name: %s", why)
	}
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		v.label(at.Child("labels").Key(key), key, n.Labels[key])
	}
	for i, text := range n.Taints {
		v.taint(at.Child("taints").Index(i), text)
	}
	v.addresses(at.Child("addresses"))
}

func (v *validator) label(at *field.Path, key, value string) {
	for _, wrong := range append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...) {
		v.invalidf(at, value, "%s", wrong)
	}
	if restricted(key) {
		v.add(field.Forbidden(at, "a node cannot set this label by itself; set it with \"ctl label node\" after the node "+
			"has joined"))
	}
}

// restricted reports whether the admission plugin NodeRestriction prevents a node from setting a label:
// those in the domains of Kubernetes, except those that describe a node, and the domain
// node-restriction.kubernetes.io.
func restricted(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	in := func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }
	switch {
	case !ok:
		return false
	case in("node.kubernetes.io"), in("kubelet.kubernetes.io"):
		return false
	case slices.Contains([]string{v1.LabelTopologyZone, v1.LabelTopologyRegion}, key):
		return false
	}
	return in("kubernetes.io") || in("k8s.io")
}

func (v *validator) taint(at *field.Path, text string) {
	left, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(left, "=")
	for _, wrong := range append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...) {
		v.invalidf(at, text, "%s", wrong)
	}
	effects := []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute}
	if !slices.Contains(effects, v1.TaintEffect(effect)) {
		v.invalidf(at, text, "must be KEY=VALUE:EFFECT or KEY:EFFECT with one of the effects %v", effects)
	}
}

func (v *validator) apiServer(at *field.Path) {
	s := v.c.APIServer
	if !slices.Contains(v.c.Node.Addresses, s.AdvertiseAddress) { // otherwise it was checked there
		v.address(at.Child("advertiseAddress"), s.AdvertiseAddress)
	}
	port := at.Child("port")
	for _, wrong := range validation.IsValidPortNum(s.Port) {
		v.invalidf(port, s.Port, "%s", wrong)
	}
	others := []int{
		EtcdClientPort, EtcdPeerPort, AgentPort, ProxyMetricsPort, KubeletPort, ProxyHealthPort, ControllerManagerPort,
		SchedulerPort,
	}
	if slices.Contains(others, s.Port) {
		v.invalidf(port, s.Port, "another program of Keelson has this port")
	}
	const firstNodePort, lastNodePort = 30000, 32767
	if s.Port >= firstNodePort && s.Port <= lastNodePort {
		v.invalidf(port, s.Port, "ports from %d to %d are for Services of the type NodePort", firstNodePort, lastNodePort)
	}
	for i, name := range s.CertSANs {
		if _, err := netip.ParseAddr(name); err == nil {
			continue
		}
		names := validation.IsDNS1123Subdomain
		if strings.HasPrefix(name, "*.") {
			names = validation.IsWildcardDNS1123Subdomain
		}
		v.check(at.Child("certSANs").Index(i), name, names)
	}
}

// podsOfRange is the maximum number of pods that get an IPv4 address from a node's range, which has 256
// addresses. One is the bridge's, and two cannot be used.
const podsOfRange = 253

func (v *validator) kubelet(at *field.Path) {
	k := v.c.Kubelet
	if k.MaxPods < 1 {
		v.invalidf(at.Child("maxPods"), k.MaxPods, "must be at least 1")
	}
	v4 := slices.ContainsFunc(v.c.Network.PodCIDRs, func(s string) bool { return !strings.Contains(s, ":") })
	if k.MaxPods > podsOfRange && v4 && v.c.Network.Plugin == PluginKeelson {
		v.invalidf(at.Child("maxPods"), k.MaxPods, "must be at most %d, because each node has 256 IPv4 addresses for pods",
			podsOfRange)
	}
	signals := []string{
		"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
		"containerfs.available", "containerfs.inodesFree", "pid.available",
	}
	for _, signal := range slices.Sorted(maps.Keys(k.EvictionHard)) {
		at, threshold := at.Child("evictionHard").Key(signal), k.EvictionHard[signal]
		v.oneOf(at, signal, signals...)
		if percent, ok := strings.CutSuffix(threshold, "%"); ok {
			if p, err := strconv.ParseFloat(percent, 64); err != nil || p < 0 || p > 100 {
				v.invalidf(at, threshold, "must be a percentage from 0%% to 100%%")
			}
		} else if q, err := resource.ParseQuantity(threshold); err != nil || q.Sign() < 0 {
			v.invalidf(at, threshold, "must be an amount such as 100Mi, or a percentage")
		}
	}
}
