# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Sets up the desk of a lab, prints "ready", and waits until its standard input is closed.
set -eu
# This mount namespace is a copy. Without these mounts, it does not keep other namespaces alive.
awk '$2 ~ "^/run/" { print $2 }' /proc/self/mounts | sort -r | while read -r mount; do
	umount -l "$mount"
done
mount -t tmpfs -o mode=755 tmpfs /run

sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0
for setting in bridge-nf-call-iptables bridge-nf-call-ip6tables bridge-nf-call-arptables; do
	[ ! -e /proc/sys/net/bridge/$setting ] || echo 0 >/proc/sys/net/bridge/$setting
done
ip link set lo up
ip link add machines type bridge
ip address add 10.60.0.1/24 dev machines
ip address add fd60::1/64 dev machines nodad
ip link set machines up

# "from" and "to" have the links whose packets are dropped, and "between" the pairs of links. "strays" counts and
# drops packets to addresses outside the lab. Packets to the default ranges of pods and Services are dropped
# without being counted, because they leave a machine until its proxy and its pod network have started.
nft -f - <<-'RULES'
	table bridge cut {
		set from { type ifname; }
		set to { type ifname; }
		set between { type ifname . ifname; }
		chain prerouting { type filter hook prerouting priority -300; iifname @from drop; }
		chain forward { type filter hook forward priority 0; iifname . oifname @between drop; }
		chain postrouting { type filter hook postrouting priority 300; oifname @to drop; }
	}
	table inet out {
		counter strays {}
		chain prerouting { type filter hook prerouting priority -300; jump check; }
		chain output { type filter hook output priority -300; jump check; }
		chain forward { type filter hook forward priority -300; counter name strays drop; }
		chain check {
			ip daddr { 10.60.0.0/24, 127.0.0.0/8, 224.0.0.0/4, 255.255.255.255 } accept
			ip6 daddr { fd60::/64, ::1, fe80::/10, ff00::/8 } accept
			ip daddr { 10.96.0.0/16, 10.244.0.0/16 } drop
			counter name strays drop
		}
	}
RULES
echo ready
exec cat
