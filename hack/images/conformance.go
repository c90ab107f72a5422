// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import v1 "github.com/google/go-containerregistry/pkg/v1"

// suite is where the Conformance suite has its images.
const suite = "registry.k8s.io/e2e-test-images/"

// conformance is what the Conformance suite wants on the nodes.
func (in inputs) conformance() ([]spec, error) {
	base, err := in.busyboxLayer()
	if err != nil {
		return nil, err
	}
	debian, err := tree(in.Debian)
	if err != nil {
		return nil, err
	}
	users := layer{
		directory("tmp", 0o1777),
		text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\nuser-defined-in-image:x:1000:1000::/home:/bin/sh\n"),
		text("etc/group", "root:x:0:\nnogroup:x:65534:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"),
	}
	env := []string{path}
	return []spec{
		{
			File:   "agnhost",
			Names:  names(suite+"agnhost", "2.63.0", "2.55"),
			Layers: []layer{debian, append(users, program("agnhost", in.Agnhost))},
			Config: v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, WorkingDir: "/", Env: env},
		},
		{
			File:   "e2e-busybox",
			Names:  names(suite+"busybox", "1.37.0-1", "1.36.1-1"),
			Layers: []layer{base},
			Config: v1.Config{Cmd: []string{"sh"}, WorkingDir: "/", Env: env},
		},
		{
			File:  "e2e-nginx",
			Names: names(suite+"nginx", "1.15-4", "1.27-0"),
			Layers: []layer{base, {
				program("usr/sbin/nginx", in.Web), directory("usr/share/nginx", 0o755), directory("usr/share/nginx/html", 0o755),
				data("usr/share/nginx/html/index.html", in.Index),
			}},
			Config: v1.Config{Cmd: []string{"nginx", "-g", "daemon off;"}, WorkingDir: "/", Env: env},
		},
		{
			File:   "e2e-nonroot",
			Names:  names(suite+"nonroot", "1.4"),
			Layers: []layer{base},
			Config: v1.Config{User: "1234", Cmd: []string{"sh"}, WorkingDir: "/", Env: env},
		},
	}, nil
}
