// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package imagelocality prefers nodes that already have the pod's images. An image's score grows
// with its size and with the share of nodes that have it. The share keeps all pods of an image from
// gathering on the single node that has it.
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

// New returns the plugin.
func New() scheduling.Plugin {
	return scheduling.Plugin{Name: Name, Score: &scheduling.ScorePoint{Scope: scheduling.NodeScope, Compile: compile}}
}

func compile(view scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
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
	return scheduling.Scorer{Score: s.score, Normalization: scheduling.AsIs, Version: s.version}
}

type scorer struct {
	view   scheduling.View
	images []string // images of all containers and image volumes
	nodes  int
}

func (s *scorer) score(n *scheduling.Node) int64 {
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

// version returns a number that changes when a node gets or loses one of the images.
func (s *scorer) version() uint64 {
	var latest uint64
	for _, name := range s.images {
		_, version := s.view.ImageNodes(name)
		latest = max(latest, version)
	}
	return latest
}
