#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the checks of the CIS Kubernetes Benchmark 1.12: those of the API server, etcd, the controller
# manager, the scheduler, the kubelet and the proxy. The cluster runs on this machine (ctl cluster up,
# make up), or this machine is part of a cluster (ctl init, ctl join). The script reads the arguments
# and files of the running processes and prints a table. It exits with an error if an automated check
# fails.
#
# Some checks concern things that Keelson may not have: pod specifications of the control plane, and
# an etcd that listens. The script checks what Keelson has instead, and the table says so in brackets.
#
# usage: hack/cis.sh [NAME]      NAME is the cluster's name (default: keelson)
#        hack/cis.sh --machine   checks the programs of this machine

set -euo pipefail

name=${1:-keelson}
if [[ $name == --help || $name == -h ]]; then
	sed -n '/^# Runs the checks/,/^#        hack/s/^# \{0,1\}//p' "$0"
	exit
fi

# The two kinds of clusters have the same files in different places. For each, the script sets:
# control   directory with the control plane's files
# store     data directory of etcd
# pid PROGRAM [NODE], specification PROGRAM [NODE]   functions
# unit      where a program's specification is
# nodes     names of the nodes on this machine
# root NODE                                          function: the directory that the node sees as /
# listening                                          function: prints the listening sockets
if [[ $name == --machine ]]; then
	[[ -d /etc/keelson ]] || { echo "cis: this machine is not part of a cluster" >&2; exit 2; }
	control=/etc/kubernetes store=/var/lib/etcd nodes=("$(hostname)")
	unit="a systemd unit and its flags in /etc/keelson"
	specification() { echo "/etc/keelson/$1.env"; }
	pid() { systemctl show --property=MainPID --value "keelson-$1.service" | sed '/^0$/d'; }
	root() { :; }
	listening() { ss -Hltn; }
else
	here=$(cd "$(dirname "$0")/.." && pwd)
	ctl=${CTL:-$here/bin/ctl}
	record=/run/keelson/$name/cluster.json
	[[ -r $record ]] || { echo "cis: cluster $name does not run here" >&2; exit 2; }
	control=$(sed -n 's/.*"dataDir": "\(.*\)".*/\1/p' "$record")
	store=$control/etcd
	pids=$("$ctl" cluster pids --name "$name")
	mapfile -t nodes < <(sed -n 's/^kubelet-\(.*\)=.*/\1/p' <<<"$pids" | sort)
	unit="the supervisor and the nodes' hosts start it from a JSON file"
	specification() { if [[ -n ${2:-} ]]; then echo "$control/nodes/$2/node.json"; else echo "$control/cluster.json"; fi; }
	pid() { sed -n "s/^$1${2:+-$2}=//p" <<<"$pids" | head -1; }
	root() { echo "$control/nodes/$1"; }
	listening() { "$ctl" cluster exec --name "$name" -- ss -Hltn; }
fi

# args PROGRAM [NODE] prints the arguments of a running program, one on each line.
args() {
	local p
	p=$(pid "$@")
	if [[ -n $p ]]; then tr '\0' '\n' <"/proc/$p/cmdline"; fi
}
declare -A arguments
for p in etcd apiserver controller-manager scheduler; do arguments[$p]=$(args "$p"); done

# value PROCESS FLAG prints the value of a flag, or nothing if the flag is not set.
value() { sed -n "s/^--$2=//p" <<<"${arguments[$1]}" | tail -1; }

# field FILE NAME prints the first field of that name in a configuration file, at any depth.
field() { sed -n "s/^ *$2: *\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" "$1" | head -1; }

# alone succeeds if the API server contains etcd.
alone() { [[ -z $(value apiserver etcd-servers) ]] && ! listening | grep -q ':23\(79\|80\) '; }

failed=0 passed=0 manual=0
# result ID KIND OK TEXT [NOTE] prints a line of the table. KIND is A (automated) or M (manual). OK is
# yes or no. A failed manual check is a warning.
result() {
	local verdict=PASS
	if [[ $3 != yes ]]; then
		verdict=FAIL
		if [[ $2 == M ]]; then verdict=WARN; fi
	fi
	case $verdict in
	PASS) ((++passed)) ;;
	FAIL) ((++failed)) ;;
	WARN) ((++manual)) ;;
	esac
	printf '%-7s %s %-4s %s%s\n' "$1" "$2" "$verdict" "$4" "${5:+ [$5]}"
}
yes() { if "$@" >/dev/null 2>&1; then echo yes; else echo no; fi; }
is() { [[ $1 == "$2" ]]; }
has() { [[ ,$1, == *,$2,* ]]; }
hasnot() { ! has "$@"; }
set_() { [[ -n $1 ]]; }
atleast() { [[ $1 =~ ^[0-9]+$ && $1 -ge $2 ]]; }

# within FILE MODE succeeds if the file has no permissions beyond those of MODE.
within() { [[ -e $1 ]] && (((8#$(stat -Lc %a "$1") & ~8#$2) == 0)); }
owned() { [[ -e $1 ]] && [[ $(stat -Lc %U:%G "$1") == root:root ]]; }
every() { # every TEST FILES... succeeds if all files pass the test: a mode, or "owned"
	local test=$1 f
	shift
	for f in "$@"; do
		case $test in
		600 | 644 | 700) within "$f" "$test" || return 1 ;;
		owned) owned "$f" || return 1 ;;
		esac
	done
}
strong() { # strong SUITES succeeds if all have forward secrecy and authenticated encryption
	local s
	[[ -n $1 ]] || return 1
	for s in ${1//,/ }; do
		[[ $s =~ ^TLS_(ECDHE_(ECDSA|RSA)_WITH_)?(AES_(128|256)_GCM_SHA(256|384)|CHACHA20_POLY1305(_SHA256)?)$ ]] || return 1
	done
}

# controlplane checks the files and the programs of a control plane.
controlplane() {
	echo "1.1 Control plane node configuration files"
	mapfile -t pki < <(find "$control/pki" -type f)
	for i in 1:"API server":apiserver 3:"controller manager":controller-manager 5:scheduler:scheduler 7:etcd:etcd; do
		IFS=: read -r n what program <<<"$i"
		if [[ $program == etcd ]] && alone; then program=apiserver; fi
		file=$(specification "$program")
		result "1.1.$n" A "$(yes within "$file" 600)" "$what specification file permissions 600" "$unit"
		result "1.1.$((n + 1))" A "$(yes owned "$file")" "$what specification file ownership root:root" "$unit"
	done
	mapfile -t cni < <(for node in "${nodes[@]}"; do find "$(root "$node")/etc/cni/net.d" -type f; done)
	result 1.1.9 M "$(yes every 644 "${cni[@]}")" "CNI file permissions"
	result 1.1.10 M "$(yes every owned "${cni[@]}")" "CNI file ownership root:root"
	result 1.1.11 A "$(yes within "$store" 700)" "etcd data directory permissions 700"
	result 1.1.12 A "$(yes owned "$store")" "etcd data directory ownership" \
		"etcd or the API server that contains it runs as root: root:root"
	result 1.1.13 A "$(yes every 600 "$control/admin.conf" "$control/super-admin.conf")" \
		"administrative credential file permissions 600"
	result 1.1.14 A "$(yes every owned "$control/admin.conf" "$control/super-admin.conf")" \
		"administrative credential file ownership root:root"
	result 1.1.15 A "$(yes every 600 "$control/scheduler.conf" "$control/pki/scheduler-client.key")" \
		"scheduler.conf permissions 600"
	result 1.1.16 A "$(yes owned "$control/scheduler.conf")" "scheduler.conf ownership root:root"
	result 1.1.17 A "$(yes every 600 "$control/controller-manager.conf" "$control/pki/controller-manager-client.key")" \
		"controller-manager.conf permissions 600"
	result 1.1.18 A "$(yes owned "$control/controller-manager.conf")" "controller-manager.conf ownership root:root"
	result 1.1.19 A "$(yes every owned "$control/pki" "${pki[@]}")" "PKI directory and file ownership root:root"
	result 1.1.20 M "$(yes every 644 "$control"/pki/*.crt)" "PKI certificate file permissions 644"
	result 1.1.21 M "$(yes every 600 "$control"/pki/*.key)" "PKI key file permissions 600"

	echo "1.2 API server"
	a=apiserver
	result 1.2.1 M "$(yes is "$(value $a anonymous-auth)" false)" "--anonymous-auth=false"
	result 1.2.2 A "$(yes is "$(value $a token-auth-file)" "")" "--token-auth-file is not set"
	result 1.2.3 M "$(yes has "$(value $a enable-admission-plugins)" DenyServiceExternalIPs)" \
		"DenyServiceExternalIPs is set"
	result 1.2.4 A \
		"$(yes eval 'set_ "$(value $a kubelet-client-certificate)" && set_ "$(value $a kubelet-client-key)"')" \
		"--kubelet-client-certificate and --kubelet-client-key"
	result 1.2.5 A "$(yes set_ "$(value $a kubelet-certificate-authority)")" "--kubelet-certificate-authority"
	modes=$(value $a authorization-mode)
	result 1.2.6 A "$(yes eval 'set_ "$modes" && hasnot "$modes" AlwaysAllow')" "--authorization-mode is not AlwaysAllow"
	result 1.2.7 A "$(yes has "$modes" Node)" "--authorization-mode includes Node"
	result 1.2.8 A "$(yes has "$modes" RBAC)" "--authorization-mode includes RBAC"
	plugins=$(value $a enable-admission-plugins) without=$(value $a disable-admission-plugins)
	result 1.2.9 M "$(yes has "$plugins" EventRateLimit)" "EventRateLimit is set" \
		"priority and fairness limits what one client may ask for, events included"
	result 1.2.10 A "$(yes hasnot "$plugins" AlwaysAdmit)" "AlwaysAdmit is not set"
	result 1.2.11 M "$(yes has "$plugins" AlwaysPullImages)" "AlwaysPullImages is set" \
		"images that no registry has, such as those of the add-ons, are loaded"
	result 1.2.12 A "$(yes hasnot "$without" ServiceAccount)" "ServiceAccount is set"
	result 1.2.13 A "$(yes hasnot "$without" NamespaceLifecycle)" "NamespaceLifecycle is set"
	result 1.2.14 A "$(yes has "$plugins" NodeRestriction)" "NodeRestriction is set"
	result 1.2.15 A "$(yes is "$(value $a profiling)" false)" "--profiling=false"
	result 1.2.16 A "$(yes eval 'set_ "$(value $a audit-log-path)" && [[ -s $(value $a audit-log-path) ]]')" \
		"--audit-log-path" "and it is written"
	result 1.2.17 A "$(yes atleast "$(value $a audit-log-maxage)" 30)" "--audit-log-maxage of 30 or more"
	result 1.2.18 A "$(yes atleast "$(value $a audit-log-maxbackup)" 10)" "--audit-log-maxbackup of 10 or more"
	result 1.2.19 A "$(yes atleast "$(value $a audit-log-maxsize)" 100)" "--audit-log-maxsize of 100 or more"
	result 1.2.20 M yes "--request-timeout" "its default of a minute"
	lookup=$(value $a service-account-lookup)
	result 1.2.21 A "$(yes eval '[[ -z $lookup || $lookup == true ]]')" "--service-account-lookup=true"
	result 1.2.22 A "$(yes set_ "$(value $a service-account-key-file)")" "--service-account-key-file"
	no_etcd=
	if alone; then no_etcd="etcd is in the same process and listens nowhere"; fi
	etcd() { # etcd FLAGS... succeeds if they are set, or if there is no connection to protect
		local f
		if alone; then return 0; fi
		for f in "$@"; do set_ "$(value $a "$f")" || return 1; done
	}
	result 1.2.23 A "$(yes etcd etcd-certfile etcd-keyfile)" "--etcd-certfile and --etcd-keyfile" "$no_etcd"
	result 1.2.24 A "$(yes eval 'set_ "$(value $a tls-cert-file)" && set_ "$(value $a tls-private-key-file)"')" \
		"--tls-cert-file and --tls-private-key-file"
	result 1.2.25 A "$(yes set_ "$(value $a client-ca-file)")" "--client-ca-file"
	result 1.2.26 A "$(yes etcd etcd-cafile)" "--etcd-cafile" "$no_etcd"
	encryption=$(value $a encryption-provider-config)
	result 1.2.27 M "$(yes set_ "$encryption")" "--encryption-provider-config"
	result 1.2.28 M \
		"$(yes eval 'set_ "$encryption" && grep -A1 "providers:" "$encryption" | grep -qE "aescbc|kms|secretbox"')" \
		"encryption providers"
	result 1.2.29 M "$(yes strong "$(value $a tls-cipher-suites)")" "strong cryptographic ciphers"
	result 1.2.30 A "$(yes is "$(value $a service-account-extend-token-expiration)" false)" \
		"--service-account-extend-token-expiration=false"

	echo "1.3 Controller manager"
	c=controller-manager
	result 1.3.1 M yes "--terminated-pod-gc-threshold" "its default of 12500"
	result 1.3.2 A "$(yes is "$(value $c profiling)" false)" "--profiling=false"
	result 1.3.3 A "$(yes is "$(value $c use-service-account-credentials)" true)" "--use-service-account-credentials=true"
	result 1.3.4 A "$(yes set_ "$(value $c service-account-private-key-file)")" "--service-account-private-key-file"
	result 1.3.5 A "$(yes set_ "$(value $c root-ca-file)")" "--root-ca-file"
	result 1.3.6 A "$(yes hasnot "$(value $c feature-gates)" RotateKubeletServerCertificate=false)" \
		"RotateKubeletServerCertificate is true" \
			"requests are approved: --approve-kubelet-serving=$(value $c approve-kubelet-serving)"
	result 1.3.7 A "$(yes is "$(value $c bind-address)" 127.0.0.1)" "--bind-address=127.0.0.1"

	echo "1.4 Scheduler"
	result 1.4.1 A "$(yes is "$(value scheduler profiling)" false)" "--profiling=false"
	result 1.4.2 A "$(yes is "$(value scheduler bind-address)" 127.0.0.1)" "--bind-address=127.0.0.1"

	echo "2 etcd"
	# own TEST FLAG WANT... checks flags of etcd, if it is a program of its own.
	own() {
		if alone; then return 0; fi
		"$@"
	}
	files() { set_ "$(value etcd "$1")" && set_ "$(value etcd "$2")"; } # files FLAG FLAG
	on() { grep -qE "^--$1(=true)?$" <<<"${arguments[etcd]}"; }         # on FLAG
	result 2.1 A "$(yes own files cert-file key-file)" "--cert-file and --key-file" "$no_etcd"
	result 2.2 A "$(yes own on client-cert-auth)" "--client-cert-auth=true" "$no_etcd"
	result 2.3 A "$(yes eval '! on auto-tls')" "--auto-tls is not true" "$no_etcd"
	result 2.4 A "$(yes own files peer-cert-file peer-key-file)" "--peer-cert-file and --peer-key-file" "$no_etcd"
	result 2.5 A "$(yes own on peer-client-cert-auth)" "--peer-client-cert-auth=true" "$no_etcd"
	result 2.6 A "$(yes eval '! on peer-auto-tls')" "--peer-auto-tls is not true" "$no_etcd"
	result 2.7 M "$(yes eval 'alone || ! is "$(value etcd trusted-ca-file)" "$(value apiserver client-ca-file)"')" \
		"a certificate authority of its own" "$no_etcd"
}

echo "CIS Kubernetes Benchmark 1.12: ${name/#--/this }, nodes ${nodes[*]:-none}"
if [[ -n ${arguments[apiserver]} ]]; then controlplane; fi
for node in "${nodes[@]}"; do
	arguments[kubelet]=$(args kubelet "$node")
	arguments[proxy]=$(args proxy "$node")
	inside_node=$(root "$node")
	service=$(specification kubelet "$node")
	kubelet=$inside_node/var/lib/kubelet/config.yaml
	proxy=$inside_node/var/lib/kube-proxy/config.conf
	echo "4 Node $node"
	echo "4.1 Worker node configuration files"
	result 4.1.1 A "$(yes within "$service" 600)" "kubelet service file permissions 600" "$unit"
	result 4.1.2 A "$(yes owned "$service")" "kubelet service file ownership root:root" "$unit"
	proxyconf=$inside_node/var/lib/kube-proxy/kubeconfig.conf
	result 4.1.3 M "$(yes within "$proxyconf" 600)" "proxy kubeconfig permissions 600"
	result 4.1.4 M "$(yes owned "$proxyconf")" "proxy kubeconfig ownership root:root"
	result 4.1.5 A "$(yes within "$inside_node/etc/kubernetes/kubelet.conf" 600)" "kubelet.conf permissions 600"
	result 4.1.6 A "$(yes owned "$inside_node/etc/kubernetes/kubelet.conf")" "kubelet.conf ownership root:root"
	result 4.1.7 M "$(yes within "$inside_node/etc/kubernetes/pki/ca.crt" 644)" \
		"certificate authorities file permissions 644"
	result 4.1.8 M "$(yes owned "$inside_node/etc/kubernetes/pki/ca.crt")" \
		"certificate authorities file ownership root:root"
	result 4.1.9 A "$(yes within "$kubelet" 600)" "kubelet configuration file permissions 600"
	result 4.1.10 A "$(yes owned "$kubelet")" "kubelet configuration file ownership root:root"

	echo "4.2 Kubelet"
	anonymous=$(sed -n '/^  anonymous:/{n;s/ *enabled: *//p}' "$kubelet")
	result 4.2.1 A "$(yes is "$anonymous" false)" "anonymous authentication is off"
	mode=$(sed -n '/^authorization:/,/^[a-z]/s/^  mode: *//p' "$kubelet")
	result 4.2.2 A "$(yes eval 'set_ "$mode" && ! is "$mode" AlwaysAllow')" "authorization is not AlwaysAllow" "$mode"
	result 4.2.3 A "$(yes set_ "$(field "$kubelet" clientCAFile)")" "clientCAFile"
	port=$(field "$kubelet" readOnlyPort)
	result 4.2.4 M "$(yes eval '[[ -z $port || $port == 0 ]]')" "no read-only port" "there is none"
	idle=$(field "$kubelet" streamingConnectionIdleTimeout)
	result 4.2.5 M yes "streamingConnectionIdleTimeout is not 0" "${idle:-0s} in the file is the default of 4h"
	chains=$(field "$kubelet" makeIPTablesUtilChains)
	result 4.2.6 A "$(yes eval '[[ -z $chains || $chains == true ]]')" "makeIPTablesUtilChains is not false"
	result 4.2.7 M "$(yes is "$(value kubelet hostname-override)" "")" "--hostname-override is not set"
	result 4.2.8 M yes "eventRecordQPS" "its default"
	result 4.2.9 M \
		"$(yes eval 'set_ "$(field "$kubelet" tlsCertFile)" || is "$(field "$kubelet" serverTLSBootstrap)" true')" \
		"a serving certificate of the cluster's" "serverTLSBootstrap"
	rotate=$(field "$kubelet" rotateCertificates)
	result 4.2.10 A "$(yes is "$rotate" true)" "rotateCertificates is true"
	result 4.2.11 M "$(yes is "$(field "$kubelet" serverTLSBootstrap)" true)" "serving certificates are rotated"
	suites=$(sed -n '/^tlsCipherSuites:/,/^[a-z]*:/s/^- //p' "$kubelet" | paste -sd,)
	result 4.2.12 M "$(yes strong "$suites")" "strong cryptographic ciphers"
	result 4.2.13 M "$(yes atleast "$(field "$kubelet" podPidsLimit)" 1)" "podPidsLimit" "$(field "$kubelet" podPidsLimit)"
	result 4.2.14 M "$(yes is "$(field "$kubelet" seccompDefault)" true)" "seccompDefault is true"

	echo "4.3 kube-proxy"
	result 4.3.1 A "$(yes eval '[[ $(field "$proxy" metricsBindAddress) == 127.0.0.1:* ]]')" "metrics at 127.0.0.1"
done

echo
echo "$passed passed, $failed failed, $manual manual checks to look at"
[[ $failed == 0 ]]
