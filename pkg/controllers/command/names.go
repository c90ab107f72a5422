// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// controllerInfo holds what Kubernetes' flags define for a controller: its alias, its number of
// workers, and whether it runs by default.
type controllerInfo struct {
	// alias is an older name of the controller that --controllers also accepts.
	alias string
	// flag is the name of the flag that sets the number of workers; workers is the flag's default.
	flag    string
	workers int
	// source is the component name in the events that the controller writes. If it is "", the
	// component name is the controller's name.
	source string
	// off means that the controller runs only if --controllers contains its name; '*' does not
	// include it. Some of these controllers also need APIs that are off by default.
	off bool
}

// upstream are the controllers of Kubernetes 1.37 by name. It includes the controllers that only
// clusters with a cloud provider need: they do not exist here, but --controllers accepts their
// names.
var upstream = map[string]controllerInfo{
	"bootstrap-signer-controller":                    {alias: "bootstrapsigner", off: true},
	"certificatesigningrequest-approving-controller": {alias: "csrapproving"},
	"certificatesigningrequest-cleaner-controller":   {alias: "csrcleaner"},
	"certificatesigningrequest-signing-controller":   {alias: "csrsigning"},
	"cloud-node-lifecycle-controller":                {alias: "cloud-node-lifecycle"},
	"clusterrole-aggregation-controller":             {alias: "clusterrole-aggregation"},
	"cronjob-controller": {alias: "cronjob",
		flag: "concurrent-cron-job-syncs", workers: 5},
	"daemonset-controller": {alias: "daemonset",
		flag: "concurrent-daemonset-syncs", workers: 2},
	"deployment-controller": {alias: "deployment",
		flag: "concurrent-deployment-syncs", workers: 5},
	"device-taint-eviction-controller": {
		flag: "concurrent-device-taint-eviction-syncs", workers: 8},
	"disruption-controller": {alias: "disruption", source: "controllermanager"},
	"endpoints-controller": {alias: "endpoint",
		flag: "concurrent-endpoint-syncs", workers: 5, source: "endpoint-controller"},
	"endpointslice-controller": {alias: "endpointslice",
		flag: "concurrent-service-endpoint-syncs", workers: 5, source: "endpoint-slice-controller"},
	"endpointslice-mirroring-controller": {alias: "endpointslicemirroring",
		flag: "mirroring-concurrent-service-endpoint-syncs", workers: 5, source: "endpoint-slice-mirroring-controller"},
	"ephemeral-volume-controller": {alias: "ephemeral-volume",
		flag: "concurrent-ephemeralvolume-syncs", workers: 5, source: "ephemeral_volume"},
	"garbage-collector-controller": {alias: "garbagecollector",
		flag: "concurrent-gc-syncs", workers: 20},
	"horizontal-pod-autoscaler-controller": {alias: "horizontalpodautoscaling",
		flag: "concurrent-horizontal-pod-autoscaler-syncs", workers: 5, source: "horizontal-pod-autoscaler"},
	"job-controller": {alias: "job",
		flag: "concurrent-job-syncs", workers: 5},
	"kube-apiserver-serving-clustertrustbundle-publisher-controller": {},
	"legacy-serviceaccount-token-cleaner-controller":                 {alias: "legacy-service-account-token-cleaner"},
	"namespace-controller": {alias: "namespace",
		flag: "concurrent-namespace-syncs", workers: 10},
	"node-ipam-controller":      {alias: "nodeipam", source: "cidrAllocator"},
	"node-lifecycle-controller": {alias: "nodelifecycle", source: "node-controller"},
	"node-route-controller":     {alias: "route"},
	"persistentvolume-attach-detach-controller": {alias: "attachdetach",
		source: "attachdetach-controller"},
	"persistentvolume-binder-controller": {alias: "persistentvolume-binder",
		source: "persistentvolume-controller"},
	"persistentvolume-expander-controller": {alias: "persistentvolume-expander",
		source: "volume_expand"},
	"persistentvolume-protection-controller":      {alias: "pv-protection"},
	"persistentvolumeclaim-protection-controller": {alias: "pvc-protection"},
	"pod-garbage-collector-controller":            {alias: "podgc"},
	"podcertificaterequest-cleaner-controller":    {},
	"podgroup-protection-controller":              {off: true},
	"replicaset-controller": {alias: "replicaset",
		flag: "concurrent-replicaset-syncs", workers: 5},
	"replicationcontroller-controller": {alias: "replicationcontroller",
		flag: "concurrent-rc-syncs", workers: 5, source: "replication-controller"},
	"resourceclaim-controller": {alias: "resource-claim-controller",
		flag: "concurrent-resourceclaim-syncs", workers: 50, source: "resource_claim"},
	"resourcepoolstatusrequest-controller": {},
	"resourcequota-controller": {alias: "resourcequota",
		flag: "concurrent-resource-quota-syncs", workers: 5},
	"root-ca-certificate-publisher-controller": {alias: "root-ca-cert-publisher"},
	"selinux-warning-controller":               {},
	"service-cidr-controller":                  {},
	"service-lb-controller":                    {alias: "service"},
	"serviceaccount-controller":                {alias: "serviceaccount"},
	"serviceaccount-token-controller": {alias: "serviceaccount-token",
		flag: "concurrent-serviceaccount-token-syncs", workers: 5},
	"statefulset-controller": {alias: "statefulset",
		flag: "concurrent-statefulset-syncs", workers: 5},
	"storage-version-migrator-controller":         {alias: "svm"},
	"storageversion-garbage-collector-controller": {alias: "storage-version-gc", off: true},
	"taint-eviction-controller":                   {},
	"token-cleaner-controller":                    {alias: "tokencleaner", off: true},
	"ttl-after-finished-controller": {alias: "ttl-after-finished",
		flag: "concurrent-ttl-after-finished-syncs", workers: 5},
	"ttl-controller": {alias: "ttl"},
	"validatingadmissionpolicy-status-controller": {
		flag: "concurrent-validating-admission-policy-status-syncs", workers: 5},
	"volumeattributesclass-protection-controller": {},
}

// addSyncs adds the flags for the number of workers of controllers, and returns pointers to their
// values by controller name.
func addSyncs(fs *pflag.FlagSet) map[string]*int {
	out := map[string]*int{}
	for name, k := range upstream {
		if k.flag != "" {
			out[name] = fs.Int(k.flag, k.workers, "number of objects that "+name+" processes at the same time")
		}
	}
	return out
}

// sourceOf returns the component name in the events that a controller writes.
func sourceOf(name string) string {
	if s := upstream[name].source; s != "" {
		return s
	}
	return name
}

// canonical replaces aliases by controller names in list, the value of --controllers. table are the
// names of the existing controllers. canonical returns an error for names that belong neither to
// Kubernetes nor to the table.
func canonical(list, table []string) ([]string, error) {
	full := map[string]string{"*": "*"}
	for name, k := range upstream {
		full[name], full[k.alias] = name, name
	}
	for _, name := range table {
		full[name] = name
	}
	out := make([]string, len(list))
	for i, item := range list {
		name, off := strings.CutPrefix(item, "-")
		if full[name] == "" || name == "" {
			return nil, fmt.Errorf("--controllers: unknown controller %q", name)
		}
		if out[i] = full[name]; off {
			out[i] = "-" + out[i]
		}
	}
	return out, nil
}
