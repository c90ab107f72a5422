// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/backup"
	"keelson.dev/keelson/pkg/machine/config"
)

// archive is a backup that was read completely.
type archive struct {
	*backup.Manifest
	files  []backup.File // all files except the store
	config *config.KeelsonConfiguration
}

// readArchive reads a backup, and writes the snapshot of the store to the file store.
func readArchive(ctx context.Context, file string, with []age.Identity, store *os.File) (*archive, error) {
	in, err := backup.OpenPath(ctx, file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	r, err := backup.Open(in, with...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	defer r.Close()
	out := &archive{Manifest: r.Manifest}
	err = r.Extract(func(e backup.Entry) (io.WriteCloser, error) {
		if e.Name == backup.StoreName {
			return keepOpen{store}, nil
		}
		return &collector{out, backup.File{Name: e.Name, Mode: e.Mode}}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	i := slices.IndexFunc(out.files, func(f backup.File) bool { return "/"+f.Name == configFile })
	if i < 0 {
		return nil, fmt.Errorf("%s: %w", file, errNoConfig)
	}
	if out.config, err = config.Decode(out.files[i].Data); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", file, configFile, err)
	}
	return out, nil
}

var errNoConfig = errors.New("the backup has no " + configFile)

// keepOpen is a file that remains open.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// collector collects the content of a file.
type collector struct {
	to   *archive
	file backup.File
}

func (c *collector) Write(p []byte) (int, error) {
	c.file.Data = append(c.file.Data, p...)
	return len(p), nil
}

func (c *collector) Close() error {
	c.to.files = append(c.to.files, c.file)
	return nil
}

// Verify reads a backup into memory, checks everything in it, and prints what is in it.
func Verify(ctx context.Context, file string, with []age.Identity, out io.Writer) error {
	fd, err := unix.MemfdCreate("store", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("memory for the store: %w", err)
	}
	store := os.NewFile(uintptr(fd), "store")
	defer store.Close()
	a, err := readArchive(ctx, file, with, store)
	if err != nil {
		return err
	}
	c, err := backup.Inspect(ctx, descriptor(store), encryptionKeys(a.files))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return a.describe(c, out)
}

// describe prints what is in a backup with the given store.
func (a *archive) describe(c *backup.Contents, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	total := 0
	for _, o := range c.Objects {
		total += o.Number
	}
	fmt.Fprintf(w, "Cluster:\t%s\nMade:\t%s on %s by %s\n", a.Cluster, a.Time.Format(time.RFC3339), a.Node, a.Release)
	fmt.Fprintf(w, "Address:\t%s\n", apiAddress(a.config))
	fmt.Fprintf(w, "Store:\trevision %d, epoch %d, %d objects, %.1f MB\n", c.Revision, c.Epoch, total,
		float64(a.Files[0].Size)/1e6)
	fmt.Fprintf(w, "Encrypted:\t%d objects, all can be decrypted\n", c.Sealed)
	if c.Foreign > 0 {
		fmt.Fprintf(w, "\t%d objects in another way, which is not checked; keys of a service are not in the backup\n",
			c.Foreign)
	}
	fmt.Fprintf(w, "Authorities:\t%s\n", strings.Join(a.authorities(), ", "))
	if others := otherFiles(a.files); len(others) > 0 {
		fmt.Fprintf(w, "Other files:\t%s\n", strings.Join(others, ", "))
	}
	fmt.Fprintf(w, "Files:\t%d\n\nKIND\tNAMESPACE\tOBJECTS\n", len(a.files))
	for _, o := range c.Objects {
		fmt.Fprintf(w, "%s\t%s\t%d\n", o.Kind, o.Namespace, o.Number)
	}
	return w.Flush()
}

// authorities returns the names of the authorities whose keys are in the backup.
func (a *archive) authorities() []string {
	var out []string
	for _, f := range a.files {
		name, below := strings.CutPrefix("/"+f.Name, controlDir.PKI("")+"/")
		if name, key := strings.CutSuffix(name, "ca.key"); below && key {
			out = append(out, name+"ca")
		}
	}
	return out
}
