#!/usr/bin/env bash
# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs Prometheus beside a cluster that runs on this machine. Prometheus is Debian's package, unpacked
# below .build/monitoring; the package is not installed. Everything else is removed when the script ends.
set -euo pipefail

usage() {
	cat <<-'USAGE'
		usage: hack/monitoring/run.sh [NAME]

		Runs Prometheus for the cluster NAME (default: keelson) until it is interrupted.
		Environment: PORT (default: 9090) is the port on 127.0.0.1; RULES (default:
		hack/monitoring/rules.yaml) is the file with the rules.
	USAGE
}

name=${1:-keelson}
if [[ $name == --help || $name == -h ]]; then
	usage
	exit
fi
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
port=${PORT:-9090}
rules=${RULES:-hack/monitoring/rules.yaml}
ctl=bin/ctl
root=.build/monitoring/root

record=/run/keelson/$name/cluster.json
[[ -r $record ]] || { echo "monitoring: cluster $name does not run here" >&2; exit 1; }
data=$(sed -n 's/.*"dataDir": "\(.*\)".*/\1/p' "$record")
apiserver=127.0.0.1:$(sed -n 's/.*"port": \([0-9]*\).*/\1/p' "$record")

mkdir -p .build/monitoring
hack/debian.sh "$root" prometheus
go build -o .build/monitoring/monitoring ./hack/monitoring

# inside is the directory of this run, as Prometheus sees it: the root directory of Prometheus is $root.
inside=/srv/$name
run=$root$inside
[[ ! -e $run ]] || { echo "monitoring: already running for cluster $name; if not, remove $run" >&2; exit 1; }
child=
end() {
	trap - EXIT INT TERM
	if [[ -n $child ]]; then
		kill "$child" 2>/dev/null || true
		wait "$child" || true
	fi
	"$ctl" --kubeconfig "$data/admin.conf" delete --ignore-not-found -f hack/monitoring/rbac.yaml >/dev/null || true
	rm -rf "$run"
}
trap end EXIT
trap 'exit 0' INT TERM

install -d -m 755 "$root/srv" "$run"
install -d -m 700 -o 65534 -g 65534 "$run/data"
sed "s/CLUSTER/$name/; s/APISERVER/$apiserver/; s/PROXY/127.0.0.1:$((port + 1))/" hack/monitoring/prometheus.yaml \
	>"$run/prometheus.yaml"
cp "$rules" "$run/rules.yaml"
cp "$data/pki/ca.crt" "$data/pki/kubelet-ca.crt" "$run"
"$ctl" --kubeconfig "$data/admin.conf" apply -f hack/monitoring/rbac.yaml >/dev/null
install -m 600 -o 65534 -g 65534 /dev/null "$run/token"
# Deleting the account, at the end, makes the token invalid.
"$ctl" --kubeconfig "$data/admin.conf" create token -n kube-system keelson-monitoring --duration 8760h >"$run/token"
chmod 644 "$run"/*.crt "$run"/*.yaml

setpriv --pdeathsig TERM .build/monitoring/monitoring --cluster "$name" --root "$root" \
	--proxy "127.0.0.1:$((port + 1))" \
	/usr/bin/prometheus --config.file="$inside/prometheus.yaml" --storage.tsdb.path="$inside/data" \
	--web.listen-address="127.0.0.1:$port" --log.level=warn &
child=$!
until curl -fs -o /dev/null "http://127.0.0.1:$port/-/ready"; do
	kill -0 "$child" 2>/dev/null || exit 1
	sleep 0.2
done
echo "Prometheus of cluster $name: http://127.0.0.1:$port"
wait "$child"
