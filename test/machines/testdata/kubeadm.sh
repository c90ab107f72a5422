# Copyright The Keelson Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes a cluster with kubeadm on this machine. /root/kubernetes has the programs of Kubernetes and the images
# of its control plane, and $RELEASE is a release of Keelson, whose containerd serves Kubernetes' kubelet.
cp /root/kubernetes/kubeadm /root/kubernetes/kubelet /usr/bin/
mkdir -p /etc/containerd /etc/cni/net.d /opt/cni /usr/lib/systemd/system/kubelet.service.d
ln -s "$RELEASE/tools/cni" /opt/cni/bin
cat >/etc/cni/net.d/10-bridge.conflist <<END
{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
	"ipMasq": false, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]],
	"routes": [{"dst": "0.0.0.0/0"}]}}]}
END
cat >/etc/containerd/config.toml <<END
version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "registry.k8s.io/pause:3.10.2"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "crun"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.crun]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.crun.options]
        BinaryName = "$RELEASE/tools/crun"
        SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    use_internal_loopback = true
[plugins."io.containerd.nri.v1.nri"]
  disable = true
END
cat >/usr/lib/systemd/system/containerd.service <<END
[Service]
Type=notify
Environment=PATH=$RELEASE/tools:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=$RELEASE/tools/containerd
Delegate=yes
KillMode=process
Restart=always
[Install]
WantedBy=multi-user.target
END
# These two are those of Kubernetes' package, except kernel-settings.
cat >/usr/lib/systemd/system/kubelet.service <<END
[Unit]
After=containerd.service
[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10
[Install]
WantedBy=multi-user.target
END
cat >/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf <<'END'
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStartPre=/usr/bin/kernel-settings
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS
END
# A machine of a lab has no kernel log, and cannot change all settings of the kernel. This kubelet does not start
# without a log, and unless these settings have the values that it wants.
cat >/usr/bin/kernel-settings <<'END'
#!/bin/sh -e
ln -sf /dev/null /dev/kmsg
for setting in kernel/panic=10 kernel/panic_on_oops=1 vm/overcommit_memory=1; do
	file=/proc/sys/${setting%=*} copy=/run/kernel-settings/${setting%=*}
	mkdir -p "$(dirname "$copy")"
	echo "${setting#*=}" >"$copy"
	mountpoint -q "$file" || mount --bind "$copy" "$file"
done
END
chmod +x /usr/bin/kernel-settings
systemctl daemon-reload
systemctl enable --now containerd.service
systemctl enable kubelet.service # kubeadm starts it
for image in /root/kubernetes/images/*.tar; do
	"$RELEASE/tools/ctr" -n k8s.io images import "$image" >/dev/null
done
mkdir -p /srv/kubernetes
cat >/srv/kubernetes/keys.yaml <<END
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox: {keys: [{name: first, secret: "$(head -c 32 /dev/urandom | base64)"}]}
  - identity: {}
END
cat >/srv/kubernetes/admission.yaml <<END
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins: [{name: PodSecurity, path: pod-security.yaml}]
END
cat >/srv/kubernetes/pod-security.yaml <<END
apiVersion: pod-security.admission.config.k8s.io/v1
kind: PodSecurityConfiguration
defaults: {warn: baseline, warn-version: latest}
END
sysctl -qw net.ipv4.ip_forward=1
kubeadm init --config=/root/kubeadm.yaml --ignore-preflight-errors=all --skip-phases=addon >/root/kubeadm.log 2>&1 || {
	tail -n 30 /root/kubeadm.log
	journalctl --no-pager --lines=40 --unit=kubelet
	exit 1
}
