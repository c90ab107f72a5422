// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// suite is the common prefix of the names of the conformance tests' images.
const suite = "registry.k8s.io/e2e-test-images/"

// conformance returns the images that nodes need for Kubernetes' conformance tests.
func (in inputs) conformance() ([]spec, error) {
	base, err := in.busyboxLayer()
	if err != nil {
		return nil, err
	}
	debian, err := tree(in.Debian)
	if err != nil {
		return nil, err
	}
	registry, err := in.pause().registry("pause", "testing")
	if err != nil {
		return nil, err
	}
	return slices.Concat(in.agnhosts(debian, registry), in.onBusybox(base), in.servers()), nil
}

// agnhosts returns the images with agnhost, the test program of the conformance tests. One of them
// also serves as a registry.
func (in inputs) agnhosts(debian, registry layer) []spec {
	program := layer{
		directory("tmp", 0o1777), directory("uploads", 0o755),
		// A program that reads this file accepts only the name of the original base image.
		text("etc/os-release", "NAME=\"Debian in the place of Alpine Linux\"\nID=debian\n"),
		text("etc/passwd",
			"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\nuser-defined-in-image:x:1000:1000::/home:/bin/sh\n"),
		text("etc/group",
			"root:x:0:\nnogroup:x:65534:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"),
		// The conformance tests' scripts are written for busybox's shell.
		program("bin/busybox", in.Busybox), symlink("bin/sh", "busybox"), symlink("bin/wget", "busybox"),
		symlink("bin/hostname", "busybox"), symlink("bin/find", "busybox"),
		program("coredns", in.CoreDNS),
		program("agnhost", in.program("agnhost")), symlink("agnhost-2", "agnhost"),
		data("localhost.crt", in.source("agnhost/porter/localhost.crt")),
		data("localhost.key", in.source("agnhost/porter/localhost.key")),
	}
	config := v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, WorkingDir: "/", Env: []string{path}}
	pictures := config
	pictures.Cmd = []string{"test-webserver"}
	out := []spec{
		{File: "agnhost", Names: names(suite+"agnhost", "2.66.1", "2.55"),
			Layers: []layer{debian, program, registry}, Config: config},
		{File: "distroless-iptables", Names: names("registry.k8s.io/build-image/distroless-iptables", "v0.9.9"),
			Layers: []layer{debian}, Config: v1.Config{Cmd: []string{"bash"}, Env: []string{path}}},
		{File: "glibc-dns-testing", Names: names(suite+"glibc-dns-testing", "2.1.1"), Layers: []layer{debian},
			Config: v1.Config{Cmd: []string{"bash"}, Env: []string{path}}},
	}
	for _, name := range []string{"kitten", "nautilus"} {
		out = append(out, spec{
			File: name, Names: names(suite+name, "1.8"), Config: pictures,
			Layers: []layer{debian, program, {data(name+".jpg", in.source(name+"/html/"+name+".jpg")),
				data("data.json", in.source(name+"/html/data.json"))}},
		})
	}
	return out
}

// onBusybox returns images that contain only busybox, with several names, and images that contain a
// small program in addition.
func (in inputs) onBusybox(base layer) []spec {
	shell := v1.Config{Cmd: []string{"sh"}, WorkingDir: "/", Env: []string{path}}
	nonroot, web := shell, shell
	nonroot.User = "1234"
	web.Cmd = []string{"nginx", "-g", "daemon off;"}
	runs := func(entrypoint string) v1.Config {
		c := shell
		c.Entrypoint, c.Cmd = []string{entrypoint}, nil
		return c
	}
	privileged := program("usr/local/bin/nnp", in.program("nonewprivs"))
	privileged.Header.Mode = 0o6755
	return []spec{
		{File: "e2e-busybox", Names: names(suite+"busybox", "1.37.0-2", "1.36.1-1"), Layers: []layer{base},
			Config: shell},
		{File: "e2e-nginx", Names: names(suite+"nginx", "1.27.0-2", "1.28.0-2"), Layers: []layer{base, {
			program("usr/sbin/nginx", in.Web), directory("usr/share/nginx", 0o755), directory("usr/share/nginx/html", 0o755),
			data("usr/share/nginx/html/index.html", in.Index),
		}}, Config: web},
		{File: "e2e-nonroot", Names: names(suite+"nonroot", "1.4", "1.5"), Layers: []layer{base}, Config: nonroot},
		{File: "ipc-utils", Names: names(suite+"ipc-utils", "1.4"), Layers: []layer{base}, Config: shell},
		{File: "nonewprivs", Names: names(suite+"nonewprivs", "1.4"),
			Layers: []layer{base, {directory("usr/local", 0o755), directory("usr/local/bin", 0o755),
				privileged}}, Config: runs("nnp")},
		{
			File: "regression-issue-74839", Names: names(suite+"regression-issue-74839", "1.5"),
			Config: runs("/regression-issue-74839"),
			Layers: []layer{base, {program("regression-issue-74839", in.program("regression-issue-74839"))}},
		},
		{
			File: "resource-consumer", Names: names(suite+"resource-consumer", "1.14"), Config: runs("/consumer"),
			Layers: []layer{base, {program("consumer", in.program("resource-consumer")),
				program("consume-cpu/consume-cpu", in.program("consume-cpu"))}},
		},
		{
			File: "sample-device-plugin", Names: names(suite+"sample-device-plugin", "1.7"), Config: runs("/sampledeviceplugin"),
			Layers: []layer{base, {program("sampledeviceplugin", in.program("sample-device-plugin"))}},
		},
	}
}

// servers returns the images for the API server that the conformance tests deploy.
func (in inputs) servers() []spec {
	dirs := layer{directory("tmp", 0o1777), directory("usr", 0o755), directory("usr/local", 0o755),
		directory("usr/local/bin", 0o755)}
	return []spec{
		{
			File: "sample-apiserver", Names: names(suite+"sample-apiserver", "1.29.2"),
			Layers: []layer{append(slices.Clone(dirs), program("sample-apiserver", in.program("sample-apiserver")))},
			Config: v1.Config{Entrypoint: []string{"/sample-apiserver"}, WorkingDir: "/", Env: []string{path}},
		},
		{
			File: "etcd", Names: []string{"registry.k8s.io/etcd:3.7.0-0"},
			Layers: []layer{append(slices.Clone(dirs), program("usr/local/bin/etcd", in.program("etcd")))},
			Config: v1.Config{Cmd: []string{"/usr/local/bin/etcd"}, WorkingDir: "/", Env: []string{path}},
		},
	}
}

// program returns the path of a program in the conformance tests' images.
func (in inputs) program(name string) string { return filepath.Join(in.Programs, name) }

// source returns the path of a file in Kubernetes' sources of these images.
func (in inputs) source(name string) string {
	return filepath.Join(in.Sources, filepath.FromSlash(name))
}
