// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// spec describes an image: its files, its configuration, and its names.
type spec struct {
	File   string
	Names  []string
	Layers []layer
	Config v1.Config
	// Arch is the architecture of the programs in the image.
	Arch string
}

const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// specs returns the images with which every node starts. Without busybox, it returns only those that
// the cluster itself needs, and not those for users' first pods.
func (in inputs) specs() ([]spec, error) {
	out := in.addons()
	if in.Busybox == "" {
		return out, nil
	}
	base, err := in.busyboxLayer()
	if err != nil {
		return nil, err
	}
	return append(out, []spec{
		{
			File:   "busybox",
			Names:  names("docker.io/library/busybox", "latest", "1.28", "1.36", "1.37", "stable", "musl", "glibc"),
			Layers: []layer{base},
			Config: v1.Config{Cmd: []string{"sh"}, WorkingDir: "/", Env: []string{path}},
		},
		{
			File: "nginx",
			Names: names("docker.io/library/nginx", "latest", "1.7.9", "1.9.1", "1.14.2", "1.16.0", "1.16.1",
				"1.25", "1.27", "1.28", "1.29", "stable", "mainline", "alpine", "1.27-alpine"),
			Layers: []layer{base, {
				program("usr/sbin/nginx", in.Web),
				directory("usr/share/nginx", 0o755),
				directory("usr/share/nginx/html", 0o755),
				data("usr/share/nginx/html/index.html", in.Index),
			}},
			Config: v1.Config{
				Cmd: []string{"nginx", "-g", "daemon off;"}, WorkingDir: "/", StopSignal: "SIGQUIT",
				Env: []string{path}, ExposedPorts: map[string]struct{}{"80/tcp": {}},
			},
		},
	}...), nil
}

// addons returns the images of pod sandboxes and of the add-ons.
func (in inputs) addons() []spec {
	return []spec{
		in.pause(),
		{
			File:  "coredns",
			Names: []string{"registry.k8s.io/coredns/coredns:v1.15.0"},
			// CoreDNS runs as root with only the capability NET_BIND_SERVICE, which it needs to
			// serve port 53.
			Layers: []layer{{program("coredns", in.CoreDNS), directory("etc", 0o755), directory("tmp", 0o1777)}},
			Config: v1.Config{Entrypoint: []string{"/coredns"}, WorkingDir: "/", Env: []string{path}},
		},
		{
			File:   "ingress",
			Names:  []string{"keelson.dev/ingress:1.37"},
			Layers: []layer{{program("ingress", in.Ingress), directory("tmp", 0o1777)}},
			Config: v1.Config{Entrypoint: []string{"/ingress"}, User: "65532:65532", WorkingDir: "/", Env: []string{path}},
		},
	}
}

// pause returns the image of pod sandboxes.
func (in inputs) pause() spec {
	return spec{
		File:   "pause",
		Names:  []string{"registry.k8s.io/pause:3.10.2", "registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.9"},
		Layers: []layer{{program("pause", in.Pause)}},
		Config: v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535", WorkingDir: "/", Env: []string{path}},
	}
}

// operator returns the image of the operator in the e2e tests.
func (in inputs) operator() ([]spec, error) {
	return []spec{{
		File: "operator", Names: []string{"keelson.dev/e2e/operator:1"},
		Layers: []layer{{program("operator", in.Operator), directory("tmp", 0o1777)}},
		Config: v1.Config{Entrypoint: []string{"/operator"}, User: "65532:65532", WorkingDir: "/", Env: []string{path}},
	}}, nil
}

// driver returns the image of the CSI driver in the e2e tests.
func (in inputs) driver() ([]spec, error) {
	return []spec{{
		File: "csi", Names: []string{"keelson.dev/e2e/csi:1"},
		Layers: []layer{{program("driver", in.Driver), directory("tmp", 0o1777)}},
		Config: v1.Config{Entrypoint: []string{"/driver"}, WorkingDir: "/", Env: []string{path}},
	}}, nil
}

// mock returns the images that Kubernetes' test suite deploys with CSI drivers. The images have a
// shell, because specs about block devices run shell commands in the image hostpathplugin.
func (in inputs) mock() ([]spec, error) {
	base, err := in.busyboxLayer()
	if err != nil {
		return nil, err
	}
	var out []spec
	for _, s := range []struct{ name, version, program string }{
		{"csi-node-driver-registrar", "v2.16.0", in.Mock}, {"hostpathplugin", "v1.17.1", in.Mock},
		{"hello-populator", "v1.0.1", in.Populator},
	} {
		out = append(out, spec{
			File: s.name, Names: []string{sidecar + s.name + ":" + s.version},
			Layers: []layer{base, {program(s.name, s.program)}},
			Config: v1.Config{Entrypoint: []string{"/" + s.name}, WorkingDir: "/", Env: []string{path}},
		})
	}
	return out, nil
}

// kubernetes returns the images of the static pods of kubeadm, with the names in its manifests.
func (in inputs) kubernetes() ([]spec, error) {
	out := []spec{{
		File: "etcd", Names: []string{"registry.k8s.io/etcd:3.7.0-0"},
		Layers: []layer{{program("usr/local/bin/etcd", in.Etcd)}},
		Config: v1.Config{WorkingDir: "/", Env: []string{path}},
	}}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		out = append(out, spec{
			File: name, Names: []string{"registry.k8s.io/" + name + ":" + in.Version},
			Layers: []layer{{program("usr/local/bin/"+name, filepath.Join(in.Kubernetes, name)), directory("tmp", 0o1777)}},
			Config: v1.Config{WorkingDir: "/", Env: []string{path}},
		})
	}
	return out, nil
}

// sidecar is the common prefix of the names of Kubernetes' CSI sidecar images.
const sidecar = "registry.k8s.io/sig-storage/"

// sidecars returns the images of Kubernetes' CSI sidecars. Their names are those in the sidecars'
// manifests; Kubernetes' test suite uses older names.
func (in inputs) sidecars() ([]spec, error) {
	var out []spec
	for _, s := range []struct{ name, version, suites string }{
		{"csi-provisioner", "v6.3.0", "v6.1.1"}, {"csi-attacher", "v4.12.0", "v4.11.0"}, {"csi-resizer", "v2.2.0", "v2.1.0"},
		{"csi-snapshotter", "v8.6.0", "v8.5.0"}, {"snapshot-controller", "v8.6.0", "v8.5.0"},
	} {
		out = append(out, spec{
			File: s.name, Names: names(sidecar+s.name, s.version, s.suites),
			Layers: []layer{{program(s.name, filepath.Join(in.Sidecars, s.name)), directory("tmp", 0o1777)}},
			Config: v1.Config{Entrypoint: []string{"/" + s.name}, WorkingDir: "/", Env: []string{path}},
		})
	}
	return out, nil
}

// store returns the image of the database in the e2e tests.
func (in inputs) store() ([]spec, error) {
	return []spec{{
		File: "walstore", Names: []string{"keelson.dev/e2e/walstore:1"},
		Layers: []layer{{program("walstore", in.Store), directory("tmp", 0o1777)}},
		Config: v1.Config{Entrypoint: []string{"/walstore"}, WorkingDir: "/", Env: []string{path}},
	}}, nil
}

func names(repository string, tags ...string) []string {
	out := make([]string, 0, len(tags))
	for _, t := range tags {
		out = append(out, repository+":"+t)
	}
	return out
}

// busyboxLayer returns a layer with a small system: busybox under the name of each of its commands,
// and the files that most programs need.
func (in inputs) busyboxLayer() (layer, error) {
	list, err := exec.Command(in.Busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list of busybox applets: %w", err)
	}
	out := layer{
		directory("bin", 0o755), directory("dev", 0o755), directory("etc", 0o755), directory("home", 0o755),
		directory("proc", 0o755), directory("root", 0o700), directory("sys", 0o755), directory("tmp", 0o1777),
		directory("usr", 0o755), directory("usr/bin", 0o755), directory("usr/sbin", 0o755), directory("usr/share", 0o755),
		directory("var", 0o755), directory("var/log", 0o755), directory("var/tmp", 0o1777),
		program("bin/busybox", in.Busybox),
		text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\n"+
			"www-data:x:33:33:www-data:/var/www:/bin/false\nnobody:x:65534:65534:nobody:/home:/bin/false\n"),
		text("etc/group", "root:x:0:\ndaemon:x:1:\nwww-data:x:33:\nnogroup:x:65534:\n"),
		text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
		symlink("usr/bin/env", "/bin/busybox"),
	}
	for applet := range strings.FieldsSeq(string(list)) {
		if applet != "busybox" {
			out = append(out, symlink("bin/"+applet, "busybox"))
		}
	}
	return out, nil
}
