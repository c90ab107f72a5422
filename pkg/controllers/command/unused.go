// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"log/slog"

	"github.com/spf13/pflag"
)

// unused are flags of Kubernetes that have no effect in this controller manager, each with the
// reason. They are accepted, and a warning is logged, so that this process also starts with the
// command line of Kubernetes' controller manager.
var unused = map[string]string{
	"enable-hostpath-provisioner":                "the drivers of storage classes create volumes",
	"flex-volume-plugin-dir":                     "flex volumes are not supported",
	"pv-recycler-increment-timeout-nfs":          "volumes with the reclaim policy Recycle are not recycled",
	"pv-recycler-minimum-timeout-hostpath":       "volumes with the reclaim policy Recycle are not recycled",
	"pv-recycler-minimum-timeout-nfs":            "volumes with the reclaim policy Recycle are not recycled",
	"pv-recycler-pod-template-filepath-hostpath": "volumes with the reclaim policy Recycle are not recycled",
	"pv-recycler-pod-template-filepath-nfs":      "volumes with the reclaim policy Recycle are not recycled",
	"pv-recycler-timeout-increment-hostpath":     "volumes with the reclaim policy Recycle are not recycled",
}

// switches are the unused flags that may be set without a value.
var switches = map[string]bool{
	"enable-hostpath-provisioner": true,
}

// addUnused adds the flags that have no effect.
func addUnused(fs *pflag.FlagSet) {
	for name, why := range unused {
		fs.String(name, "", "no effect: "+why)
		if switches[name] {
			fs.Lookup(name).NoOptDefVal = "true"
		}
	}
}

// warnUnused logs a warning for each flag without effect that was set.
func warnUnused(fs *pflag.FlagSet, log *slog.Logger) {
	fs.Visit(func(f *pflag.Flag) {
		if why, there := unused[f.Name]; there {
			log.Warn("Flag has no effect", "flag", f.Name, "reason", why)
		}
	})
}
