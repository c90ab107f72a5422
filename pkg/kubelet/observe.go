// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/eviction"
)

// observe measures the resources whose shortage leads to evictions.
func (u *usage) observe(ctx context.Context) (eviction.Observation, error) {
	dir, dirErr := u.runtime.imageDir(ctx)
	o, err := eviction.Observe(u.cfg.RootDir, dir)
	if most := u.podMemory; most > 0 {
		if used := cgroupReader().Read(u.cgroups.Groups()[0]).Memory; used != nil {
			o[eviction.AllocatableMemory] = eviction.Amount{Available: max(most-int64(used.WorkingSet), 0), Capacity: most}
		}
	}
	return o, errors.Join(dirErr, err)
}

// imageDisk measures the file system on which the runtime stores images. The results are in bytes.
func (r *runtime) imageDisk(ctx context.Context) (capacity, available uint64, err error) {
	dir, err := r.imageDir(ctx)
	if err != nil {
		return 0, 0, err
	}
	space, _, err := eviction.MeasureDisk(dir)
	return uint64(max(space.Capacity, 0)), uint64(max(space.Available, 0)), err
}

// imageDir returns the directory in which the runtime stores images.
func (r *runtime) imageDir(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := r.client.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return "", fmt.Errorf("file system of the images: %s", cri.Message(err))
	}
	for _, fs := range info.GetImageFilesystems() {
		if dir := fs.GetFsId().GetMountpoint(); dir != "" {
			return dir, nil
		}
	}
	return "", errors.New("the runtime does not report where its images are")
}

// imagesInUse returns the names and IDs of the images of all containers in the runtime.
func (r *runtime) imagesInUse(ctx context.Context) (map[string]bool, error) {
	list, err := r.client.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %s", cri.Message(err))
	}
	used := map[string]bool{}
	for _, c := range list.GetContainers() {
		for _, name := range []string{c.GetImage().GetImage(), c.GetImageRef(), c.GetImageId()} {
			if name != "" {
				used[name] = true
			}
		}
	}
	return used, nil
}
