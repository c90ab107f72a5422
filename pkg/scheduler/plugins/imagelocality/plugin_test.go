// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package imagelocality_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/scheduler/plugins/imagelocality"
	"keelson.dev/keelson/pkg/scheduler/plugins/plugintest"
)

func having(size int64, images ...string) func(*v1.Node) {
	return func(n *v1.Node) {
		for _, name := range images {
			n.Status.Images = append(n.Status.Images, v1.ContainerImage{Names: []string{name}, SizeBytes: size})
		}
	}
}

func running(images ...string) *v1.Pod {
	return plugintest.Pod("p", func(p *v1.Pod) {
		p.Spec.Containers = nil
		for _, image := range images {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Image: image})
		}
	})
}

func TestScore(t *testing.T) {
	const mb = 1 << 20
	for name, tc := range map[string]struct {
		nodes []*v1.Node
		pod   *v1.Pod
		want  map[string]int64
	}{
		"small images do not count": {
			[]*v1.Node{plugintest.Node("a", having(23*mb, "i:1")), plugintest.Node("b")}, running("i:1"),
			map[string]int64{"a": 0, "b": 0},
		},
		// The score is 100 * (1000*1/2 - 23) / (1000 - 23): size in MB times share of nodes, within
		// the thresholds.
		"weighted by the share of nodes": {
			[]*v1.Node{plugintest.Node("a", having(1000*mb, "i:1")), plugintest.Node("b")}, running("i:1"),
			map[string]int64{"a": 48, "b": 0},
		},
		"on all nodes": {
			[]*v1.Node{plugintest.Node("a", having(1000*mb, "i:1")),
				plugintest.Node("b", having(2000*mb, "i:1"))}, running("i:1"),
			map[string]int64{"a": 100, "b": 100},
		},
		"no tag is latest": {
			[]*v1.Node{plugintest.Node("a", having(2000*mb, "i:latest")), plugintest.Node("b")}, running("i"),
			map[string]int64{"a": 100, "b": 0},
		},
		// The score is 100 * (1000*1/2 - 23) / (2*1000 - 23): size in MB times share of nodes, for
		// two images.
		"one of two images": {
			[]*v1.Node{plugintest.Node("a", having(1000*mb, "i:1")), plugintest.Node("b")}, running("i:1", "j:1"),
			map[string]int64{"a": 24, "b": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, plugintest.NewView(tc.nodes).Score(imagelocality.New(), tc.pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestVersion checks that cached scores of a class are computed again when another node gets an
// image.
func TestVersion(t *testing.T) {
	view := plugintest.NewView([]*v1.Node{plugintest.Node("a", having(1, "i:1"))})
	s := imagelocality.New().Score.Compile(view, view.NewPod(running("i:1")))
	before := s.Version()
	view.SetNode(plugintest.Node("b", having(1, "j:1")))
	if s.Version() != before {
		t.Error("the version changed with another image")
	}
	view.SetNode(plugintest.Node("b", having(1, "i:1")))
	if s.Version() == before {
		t.Error("the version did not change")
	}
}
