// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package imagelocality prefers nodes that hold the pod's images already,
// weighing an image by its size and by how many nodes hold it, so that pods do
// not all follow one image to one node.
package imagelocality

import (
	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "ImageLocality"

const (
	mb           = 1 << 20
	minThreshold = 23 * mb
	maxPerImage  = 1000 * mb
)

// Plugin implements scheduling.ScorePlugin.
type Plugin struct{}

var _ scheduling.ScorePlugin = Plugin{}

// Name implements scheduling.Plugin.
func (Plugin) Name() string { return Name }

// ScoreScope implements scheduling.ScorePlugin.
func (Plugin) ScoreScope() scheduling.Scope { return scheduling.NodeScope }

// CompileScore implements scheduling.ScorePlugin.
func (Plugin) CompileScore(view scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
	s := scorer{view: view, nodes: len(view.Nodes())}
	for i := range pod.Spec.InitContainers {
		s.images = append(s.images, cell.ImageName(pod.Spec.InitContainers[i].Image))
	}
	for i := range pod.Spec.Containers {
		s.images = append(s.images, cell.ImageName(pod.Spec.Containers[i].Image))
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			s.images = append(s.images, cell.ImageName(image.Reference))
		}
	}
	return s
}

type scorer struct {
	view   scheduling.View
	images []string // of all containers and image volumes
	nodes  int
}

func (s scorer) Score(n *scheduling.Node) int64 {
	var sum int64
	for _, name := range s.images {
		if size, ok := n.Images[name]; ok {
			holders, _ := s.view.ImageNodes(name)
			sum += int64(float64(size) * (float64(holders) / float64(s.nodes)))
		}
	}
	highest := int64(maxPerImage) * int64(len(s.images))
	sum = min(max(sum, minThreshold), highest)
	return scheduling.MaxNodeScore * (sum - minThreshold) / (highest - minThreshold)
}

// Version implements scheduling.Versioned: other nodes may get and lose the images.
func (s scorer) Version() uint64 {
	var latest uint64
	for _, name := range s.images {
		_, version := s.view.ImageNodes(name)
		latest = max(latest, version)
	}
	return latest
}

func (scorer) Normalize([]int32, []int64) {}

// Normalization implements scheduling.Usual.
func (scorer) Normalization() scheduling.Normalization { return scheduling.AsIs }
