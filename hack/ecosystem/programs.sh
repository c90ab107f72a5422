# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by hack/ecosystem.sh: the suites that run programs with a cluster without nodes.
# shellcheck shell=bash

# control_plane creates a cluster without nodes for the current suite, and removes it when the suite
# ends. It sets KUBECONFIG.
control_plane() {
	"$root/hack/build.sh"
	remove_control_plane
	export KUBECONFIG=$out/kubeconfig
	rm -f "$KUBECONFIG"
	trap remove_control_plane EXIT
	"$root/bin/ctl" cluster up --name ecosystem --nodes 0 --kubeconfig "$KUBECONFIG"
}

remove_control_plane() {
	"$root/bin/ctl" cluster down --name ecosystem
}

# program NAME PACKAGE [FLAG...] builds a program in $out/NAME, which has its module's source.
program() {
	local name=$1 package=$2
	shift 2
	(cd "$out/$name" && GOWORK=off CGO_ENABLED=0 go build -ldflags '-s -w' "$@" -o "$out/bin/$name" "$package")
}

# equal WANTED COMMAND [ARGUMENT...] succeeds if the command prints WANTED.
equal() {
	local wanted=$1 got
	shift
	got=$("$@")
	[[ $got == "$wanted" ]] || { echo "got: $got, wanted: $wanted" && return 1; }
}

# contains PATTERN COMMAND [ARGUMENT...] succeeds if the command's output contains a match of the
# extended regular expression.
contains() {
	local pattern=$1 got
	shift
	got=$("$@")
	grep -qE "$pattern" <<<"$got" || { echo "got: $got, wanted: $pattern" && return 1; }
}

# rejected COMMAND [ARGUMENT...] succeeds if the command fails.
rejected() {
	if "$@"; then
		echo "succeeded: $*"
		return 1
	fi
}

# within_a_minute COMMAND [ARGUMENT...] repeats the command until it succeeds.
within_a_minute() {
	local end=$((SECONDS + 60))
	until "$@"; do
		((SECONDS < end)) || return 1
		sleep 1
	done
}

kubectl() {
	"$root/bin/kubectl" "$@"
}

suite_helm3() {
	"$root/hack/tools.sh" helm
	control_plane
	helm_checks "$root/bin/tools/helm" --atomic
}

suite_helm4() {
	source_of helm.sh/helm/v4 v4.3.2 h1:zdd8DgKTlLrlYIzdoAntDHLH0V3RkgNIpQ3yjzuD84M= helm4
	program helm4 ./cmd/helm
	control_plane
	helm_checks "$out/bin/helm4" --rollback-on-failure
}

# helm_checks PROGRAM UNDO installs, changes and removes a release of hack/ecosystem/chart with a program
# of Helm. UNDO is its flag for "return to the previous revision if the upgrade fails".
helm_checks() {
	local program=$1 undo=$2 chart=$own/chart
	export HELM_NAMESPACE=shop HELM_CACHE_HOME=$out/helm/cache HELM_CONFIG_HOME=$out/helm/config \
		HELM_DATA_HOME=$out/helm/data
	field() { kubectl -n shop get "$1" -o "jsonpath={$2}"; }
	helm() { "$program" "$@"; }

	check "install --wait" helm install shop "$chart" --create-namespace --wait --timeout 2m
	check "lookup, capabilities, revision" equal '{"greeting":"hello","offers":"true","revision":"1"}' \
		field configmap/shop .data
	check "hook before install" kubectl -n shop wait --for=condition=Complete job/prepare --timeout 1s
	check "custom resource of the chart's CRD" equal 10 field offer/shop .spec.price
	check "list" contains '"status":"deployed"' helm list -o json
	check "status" contains 'STATUS: deployed' helm status shop

	local password
	password=$(field secret/shop .data.password)
	check "upgrade --dry-run=server" contains 'greeting: "?welcome' \
		helm upgrade shop "$chart" --dry-run=server --set greeting=welcome
	check "dry run changes nothing" equal hello field configmap/shop .data.greeting
	check "upgrade --wait" helm upgrade shop "$chart" --set greeting=welcome,price=20 --wait --timeout 2m
	check "changed values" equal welcome20 fields
	check "lookup finds the old object" equal "$password" field secret/shop .data.password
	check "upgrade that the API server rejects" rejected \
		helm upgrade shop "$chart" --set greeting=bad,price=-1 "$undo" --timeout 1m
	check "previous revision is back" equal welcome20 fields
	check "test" helm test shop --timeout 1m
	check "rollback --wait" helm rollback shop 1 --wait --timeout 2m
	check "values of the first revision" equal hello10 fields
	check "history" contains 'Rollback to 1' helm history shop
	check "uninstall --wait" helm uninstall shop --wait --timeout 2m
	check "nothing is left" equal "" kubectl -n shop get configmaps,secrets,offers,deployments,services \
		-l app=shop -o name
	check "the CRD is left" kubectl get crd offers.shop.example.com
}

fields() {
	printf '%s%s' "$(field configmap/shop .data.greeting)" "$(field offer/shop .spec.price)"
}

suite_kustomize() {
	kustomize_program
	control_plane
	local built=$out/kustomize.yaml
	live() { kubectl -n test-shop get "$1" -o "jsonpath={$2}"; }
	settings() { live configmaps '.items[?(@.metadata.labels.stage=="test")].data.colour'; }
	apply() { kubectl apply -f "$built" --prune -l stage=test --prune-allowlist core/v1/ConfigMap; }

	check "build" "$out/bin/kustomize" build "$own/kustomize/overlay" -o "$built"
	check "kubectl kustomize builds the same" equal "$(<"$built")" kubectl kustomize "$own/kustomize/overlay"
	check "apply" apply
	check "image and replicas" equal "nginx:1.28 0" \
		live deployment/test-web '.spec.template.spec.containers[0].image} {.spec.replicas'
	check "patch of a Service" equal http live service/test-web '.spec.ports[0].name'
	check "generated ConfigMap" equal green settings
	check "apply again changes nothing" rejected contains ' (created|configured|pruned)$' apply
	sed -i 's/colour: green/colour: red/; s/test-settings-[a-z0-9]*/test-settings-changed/' "$built"
	check "apply with another ConfigMap" contains '^configmap/test-settings-.* pruned$' apply
	check "the old ConfigMap is pruned" equal red settings
	check "server-side apply" kubectl apply --server-side -f "$built"
	check "diff finds no difference" kubectl diff --server-side -f "$built"
	# The namespace controller may delete an object before kubectl does.
	check "delete" kubectl delete --wait --ignore-not-found -f "$built"
	check "nothing is left" rejected kubectl get namespace test-shop
}

kustomize_program() {
	source_of sigs.k8s.io/kustomize/kustomize/v5 v5.8.2 h1:sSNeWwgkdSMGCIavtY63JQMgBJkGv3IwOltWVZy+LFQ= kustomize
	program kustomize .
}

suite_prometheus() {
	source_of github.com/prometheus/prometheus v0.316.0 h1:f1GRFerhTMKQma+awCoC9T820ecWeGSdF+xAlMHzZzM= prometheus
	program prometheus ./cmd/prometheus -tags remove_all_sd,enable_kubernetes_sd
	control_plane
	local address=127.0.0.1:19090
	rm -rf "$out/prometheus-data"
	sed "s,KUBECONFIG,$KUBECONFIG," "$own/prometheus/prometheus.yaml" >"$out/prometheus.yaml"
	setpriv --pdeathsig KILL "$out/bin/prometheus" --config.file="$out/prometheus.yaml" \
		--storage.tsdb.path="$out/prometheus-data" --web.listen-address="$address" &
	targets() { curl -fsS "http://$address/api/v1/targets?state=dropped"; }
	# found LABEL VALUE succeeds if a target has the label __meta_kubernetes_LABEL with a value that
	# matches the extended regular expression.
	found() { targets | grep -qE "\"__meta_kubernetes_$1\":\"$2\""; }
	gone() { ! found "$@"; }
	status() { kubectl patch "$1" --subresource=status --type=merge -p "$2"; }

	check "Prometheus is ready" within_a_minute curl -fs "http://$address/-/ready"
	check "objects" kubectl apply -f "$own/prometheus/objects.yaml"
	check "status of the node" status node/n1 \
		'{"status":{"addresses":[{"type":"InternalIP","address":"10.50.0.9"}]}}'
	check "status of the pod" status pod/web '{"status":{"phase":"Running","podIP":"10.244.9.9",
		"podIPs":[{"ip":"10.244.9.9"}],"conditions":[{"type":"Ready","status":"True"}]}}'
	check "role node" within_a_minute found node_label_disk fast
	check "role pod" within_a_minute found pod_container_port_name http
	check "role service" within_a_minute found service_port_name http
	check "role endpoints" within_a_minute found endpoints_name web
	check "role endpointslice" within_a_minute found endpointslice_name 'web-[a-z0-9]+'
	check "role ingress" within_a_minute found ingress_host web.example.com
	check "change of a label" kubectl label --overwrite node/n1 disk=slow
	check "changed node" within_a_minute found node_label_disk slow
	check "deletion" kubectl delete ingress/web
	check "deleted ingress" within_a_minute gone ingress_host web.example.com
	kill "$("$root/bin/ctl" cluster pids --name ecosystem | sed -n 's/^apiserver=//p')"
	# Prometheus discovers a Service as one target for each port, so the Service must have a port.
	check "object after the API server's restart" within_a_minute \
		kubectl create service externalname late --external-name late.example.com --tcp 80
	check "service after the API server's restart" within_a_minute found service_external_name late.example.com
}

suite_python() {
	local python=$out/python srv=$out/python/srv
	"$root/hack/debian.sh" "$python" python3-kubernetes
	control_plane
	# Some tests need a node with a label.
	kubectl create -f - <<<'{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","labels":{"disk":"fast"}}}'
	mkdir -p "$srv" "$python/tmp" "$python/usr/lib/python3/dist-packages/kubernetes/e2e_test"
	cp "$own/python/check.py" "$KUBECONFIG" "$srv"
	cp "$own/python/base.py" "$python/usr/lib/python3/dist-packages/kubernetes/e2e_test"
	HOME=/srv PYTHONPATH=/srv KUBECONFIG=/srv/kubeconfig chroot "$python" \
		/usr/bin/python3 -m unittest -v kubernetes.dynamic.test_client kubernetes.dynamic.test_discovery check
}
