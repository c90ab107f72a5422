#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs a benchmark against a new control plane, either Keelson's or Kubernetes'. Kubernetes is built from
# the module that test/conformance requires. The speed of a machine can change from hour to hour, so
# compare results only if both control planes were measured at about the same time.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: test/bench/beside.sh keelson|kubernetes [-c] COMMAND [ARG...]

		Starts etcd, API server and scheduler on 127.0.0.1 with TLS, RBAC and fsync, runs COMMAND, and then
		stops them. Keelson's programs are taken from bin/; those of Kubernetes are built into
		.build/kubernetes/ and have high limits for the rate of their requests.

		-c  also start the controller manager

		COMMAND gets the environment variables KUBECONFIG, a file with administrator rights, and PIDS, the
		process IDs (api=PID,sch=PID,...). The variable PORT is the first of seven ports to use (17710).
	USAGE
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
port=${PORT:-17710}
address=127.0.0.1

fail() {
	usage >&2
	exit 2
}

# certificates creates a CA, the certificates of the server and of the users, and the key pair for the
# tokens of service accounts.
certificates() {
	local name subject
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=ca -days 2 -keyout ca.key \
		-out ca.crt
	openssl genrsa -out sa.key 2048
	openssl rsa -in sa.key -pubout -out sa.pub
	while read -r name subject; do
		openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "$subject" -keyout "$name.key" \
			-out "$name.csr"
		openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out "$name.crt" \
			-extfile <(printf 'subjectAltName=IP:%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$address")
	done <<-'USERS'
		server /CN=apiserver
		admin /O=system:masters/CN=admin
		scheduler /CN=system:kube-scheduler
		manager /CN=system:kube-controller-manager
	USERS
}

kubeconfig() {
	cat <<-YAML
		apiVersion: v1
		kind: Config
		clusters: [{name: c, cluster: {server: "https://$address:$port", certificate-authority: $work/ca.crt}}]
		users: [{name: u, user: {client-certificate: $work/$1.crt, client-key: $work/$1.key}}]
		contexts: [{name: x, context: {cluster: c, user: u}}]
		current-context: x
	YAML
}

# build builds Kubernetes' programs, and etcd from the module that Keelson's API server embeds.
build() {
	mkdir -p "$bin"
	(cd "$root/test/conformance" && GOWORK=off CGO_ENABLED=0 go build -trimpath -o "$bin/" \
		k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager \
			k8s.io/kubernetes/cmd/kube-scheduler)
	(cd "$root" && CGO_ENABLED=0 go build -trimpath -o "$bin/etcd" go.etcd.io/etcd/server/v3)
}

pids=()
PIDS=

# begin NAME COMMAND... starts a process that ends with this script.
begin() {
	local name=$1
	shift
	"$@" >"$work/$name.log" 2>&1 &
	pids+=("$!")
	PIDS+=${PIDS:+,}$name=$!
}

end() {
	local i
	for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
		kill "${pids[i]}" 2>/dev/null || true
		wait "${pids[i]}" 2>/dev/null || true
	done
	rm -rf "$work"
}

# ready PORT PATH waits until a request to the path succeeds.
ready() {
	local i
	for ((i = 0; i < 300; i++)); do
		if curl -fsk --cert "$work/admin.crt" --key "$work/admin.key" "https://$address:$1$2" >/dev/null 2>&1; then
			return
		fi
		sleep 0.2
	done
	echo "nothing is ready at port $1:" >&2
	tail -n 3 "$work"/*.log >&2
	return 1
}

which=${1:-}
case $which in
keelson) bin=$root/bin prefix= ;;
kubernetes) bin=$root/.build/kubernetes prefix=kube- ;;
-h | --help)
	usage
	exit
	;;
*) fail ;;
esac
shift
controllers=
if [[ ${1:-} == -c ]]; then
	controllers=1
	shift
fi
[[ $# -gt 0 ]] || fail

work=$(mktemp -d)
trap end EXIT
(cd "$work" && certificates) 2>"$work/openssl.log"
for user in admin scheduler manager; do
	kubeconfig "$user" >"$work/$user.yaml"
done
storage=(--data-dir "$work/etcd")
limits=() scheduler=() manager=()
if [[ $which == kubernetes ]]; then
	build
	client=http://$address:$((port + 3)) peer=http://$address:$((port + 4))
	begin etcd "$bin/etcd" --data-dir "$work/etcd" --listen-client-urls "$client" --advertise-client-urls "$client" \
		--listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer"
	storage=(--etcd-servers "$client" --service-cluster-ip-range 10.96.0.0/16 --endpoint-reconciler-type none)
	limits=(--kube-api-qps 5000 --kube-api-burst 5000)
	# Without these options, Kubernetes' processes do not ask the API server which users may read their metrics.
	scheduler=(--authentication-kubeconfig "$work/scheduler.yaml" --authorization-kubeconfig "$work/scheduler.yaml")
	manager=(--authentication-kubeconfig "$work/manager.yaml" --authorization-kubeconfig "$work/manager.yaml")
fi
begin api "$bin/${prefix}apiserver" "${storage[@]}" --bind-address "$address" --advertise-address "$address" \
	--secure-port "$port" \
	--tls-cert-file "$work/server.crt" --tls-private-key-file "$work/server.key" --client-ca-file "$work/ca.crt" \
	--service-account-key-file "$work/sa.pub" --service-account-signing-key-file "$work/sa.key" \
	--service-account-issuer "https://$address" --authorization-mode Node,RBAC
ready "$port" /readyz
begin sch "$bin/${prefix}scheduler" --kubeconfig "$work/scheduler.yaml" --leader-elect=false --bind-address "$address" \
	--secure-port $((port + 1)) "${limits[@]}" "${scheduler[@]}"
ready $((port + 1)) /readyz
if [[ -n $controllers ]]; then
	begin cm "$bin/${prefix}controller-manager" --kubeconfig "$work/manager.yaml" --leader-elect=false \
		--bind-address "$address" \
		--secure-port $((port + 2)) --use-service-account-credentials --service-account-private-key-file "$work/sa.key" \
		--root-ca-file "$work/ca.crt" --cluster-signing-cert-file "$work/ca.crt" --cluster-signing-key-file \
			"$work/ca.key" "${limits[@]}" "${manager[@]}"
	ready $((port + 2)) /healthz
fi
export PIDS KUBECONFIG=$work/admin.yaml
"$@"
