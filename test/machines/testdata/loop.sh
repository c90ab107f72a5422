# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Sends requests to the API server for ever, each from a new process, and records those that fail.
: > /root/failed
while sleep 0.3; do
	out=$(/usr/lib/keelson/current/bin/ctl --kubeconfig=/root/old.conf get --raw '/api/v1/namespaces/default/pods?limit=1' 2>&1) ||
		echo "$(date): $out" >> /root/failed
done
