until [ -z "$(ip -6 address show tentative)" ]; do sleep 0.1; done
list() { while IFS= read -r line; do printf '%s %s\n' "$kind" "$line"; done; }
kind=file; find /etc /usr /opt /var /run /srv -xdev \
	! -path '/usr/lib/keelson/test/*' ! -path '/run/systemd/*' ! -path '/run/udev/*' ! -path '/run/log/*' \
	! -path '/var/log/journal/*' \
	\( -type f -printf '%p %y %m %U:%G %s\n' -o -printf '%p %y %m %U:%G %l\n' \) | list
kind=content; find /etc -xdev -type f -exec sha256sum {} + | list
kind=mount; awk '{ print $5, $(NF-2), $(NF-1) }' /proc/self/mountinfo | list
kind=link; ip -br link | list
kind=address; ip -br address | list
for family in -4 -6; do
	kind=route$family; ip $family route show table all | list
	kind=rule$family; ip $family rule | list
done
kind=packets; nft list ruleset | list
kind=process; ps -e -o ppid=,args= | awk '$1 == 1 || $2 == "/sbin/init" { $1 = ""; print }' | list
kind=cgroup; find /sys/fs/cgroup -type d | list
kind=loop; losetup --list --noheadings --output BACK-FILE | grep /var/lib/kubelet | list
kind=unit; systemctl list-units --all --plain --no-legend --full | awk '{ print $1, $2, $3 }' | list
kind=unit-file; systemctl list-unit-files --no-legend --full | awk '{ print $1, $2 }' | list
