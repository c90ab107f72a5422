// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"keelson.dev/keelson/pkg/backup"
	"keelson.dev/keelson/pkg/machine/adopt"
	"keelson.dev/keelson/pkg/provision"
)

// maxNamed is the maximum size of a file that a flag names. Backups are made and restored in memory, except the store.
const maxNamed = 16 << 20

var errTooLarge = errors.New("it is too large for a backup: move what is needed of it to a smaller file")

// addNamed adds to the files of a backup those at other places that the flags of the control plane's programs name, for
// example the authority of an OIDC provider, and those that such files name. Only an administrator's flags do that.
func addNamed(files []backup.File) ([]backup.File, error) {
	var queue []string
	for _, f := range controlPlaneFlags(files) {
		if !slices.Contains(outputs(), f.Name) {
			queue = append(queue, f.Paths()...)
		}
	}
	for i := 0; i < len(queue); i++ { // it grows
		path := queue[i]
		if slices.Contains(queue[:i], path) {
			continue
		}
		at := slices.IndexFunc(files, func(f backup.File) bool { return "/"+f.Name == path })
		if at < 0 {
			f, err := readNamed(path)
			if err != nil {
				return nil, fmt.Errorf("%s, which a flag names: %w", path, err)
			}
			if f == nil {
				continue
			}
			at = len(files)
			files = append(files, *f)
		}
		queue = append(queue, mentioned(path, files[at].Data)...)
	}
	return files, nil
}

// readNamed reads a file. It returns nil if there is none, because the path is that of a URL, a directory or a socket.
func readNamed(path string) (*backup.File, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Size() > maxNamed {
		return nil, errTooLarge
	}
	data, err := os.ReadFile(path)
	return &backup.File{Name: strings.TrimPrefix(path, "/"), Mode: info.Mode().Perm(), Data: data}, err
}

// outputs returns the names of flags whose files the programs write.
func outputs() []string { return []string{"audit-log-path", "log-outputs"} }

// controlPlaneFlags returns the flags of the control plane's programs, from the files of a backup.
func controlPlaneFlags(files []backup.File) (out []adopt.Flag) {
	for _, f := range files {
		if slices.ContainsFunc(controlPrograms(), func(p string) bool { return "/"+f.Name == argsFile(p) }) {
			out = append(out, parseArgs(string(f.Data))...)
		}
	}
	return out
}

// parseArgs returns the flags in a file with a program's flags, which an administrator may have edited.
func parseArgs(content string) (out []adopt.Flag) {
	for line := range strings.Lines(strings.ReplaceAll(content, "\\\n", " ")) {
		args, ok := strings.CutPrefix(strings.TrimSpace(line), "ARGS=")
		if !ok {
			continue
		}
		for _, arg := range strings.Fields(strings.Trim(args, `"'`)) {
			if name, value, _ := strings.Cut(arg, "="); strings.HasPrefix(name, "-") {
				out = append(out, adopt.Flag{Name: strings.TrimLeft(name, "-"), Value: value})
			} else if len(out) > 0 { // --NAME VALUE
				out[len(out)-1].Value = arg
			}
		}
	}
	return out
}

// mentioned returns the paths in the content of a file of YAML, for example those of a kubeconfig of a webhook. It
// returns none for a file of another format.
func mentioned(path string, data []byte) []string {
	var content any
	if yaml.Unmarshal(data, &content) != nil {
		return nil
	}
	var out []string
	var walk func(key string, value any)
	walk = func(key string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(k, v[k])
			}
		case []any:
			for _, each := range v {
				walk(key, each)
			}
		case string:
			if filepath.IsAbs(v) {
				out = append(out, filepath.Clean(v))
			} else if v != "" && slices.Contains(relative(), key) {
				out = append(out, filepath.Join(filepath.Dir(path), v))
			}
		}
	}
	walk("", content)
	return out
}

// relative returns the names of the fields of kubeconfigs and of the configuration of admission whose paths are
// relative to the directory of their file.
func relative() []string {
	return []string{"certificate-authority", "client-certificate", "client-key", "tokenFile", "path"}
}

// encryptionKeys returns the keys in the API server's file with encryption keys. Other services' are not in it.
func encryptionKeys(files []backup.File) (out []apiserverv1.Key) {
	path := controlDir.EncryptionKeys()
	for _, f := range files {
		if "/"+f.Name != argsFile(provision.APIServer) {
			continue
		}
		for _, flag := range parseArgs(string(f.Data)) {
			if flag.Name == "encryption-provider-config" {
				path = filepath.Clean(flag.Value)
			}
		}
	}
	for _, f := range files {
		var c apiserverv1.EncryptionConfiguration
		if "/"+f.Name != path || yaml.Unmarshal(f.Data, &c) != nil {
			continue
		}
		for _, r := range c.Resources {
			for _, p := range r.Providers {
				if p.Secretbox != nil {
					out = append(out, p.Secretbox.Keys...)
				}
			}
		}
	}
	return out
}

// otherFiles returns the paths of the files of a backup that are not in the directories of control planes.
func otherFiles(files []backup.File) (out []string) {
	for _, f := range files {
		if path := "/" + f.Name; !strings.HasPrefix(path, ownConfig+"/") && !strings.HasPrefix(path, string(controlDir)+"/") {
			out = append(out, path)
		}
	}
	return out
}
