// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/kubectl/pkg/cmd/cp"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/utils/ptr"
)

// archiver is a container whose tar command returns the attacker's archive.
type archiver struct{ archive []byte }

func (a archiver) ExecInContainer(_ context.Context, _, _, _ string, _ []string, _ io.Reader, out,
	_ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	_, err := out.Write(a.archive)
	return err
}

func (a archiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, a, "p", "", "c", nil, options, time.Minute, time.Minute,
		remotecommand.SupportedStreamingProtocols)
}

// TestCVE_2019_11249 copies files from a container whose archive has paths (CVE-2018-1002100) and
// links (CVE-2019-11249, CVE-2019-11251) that lead out of the target directory. Older clients wrote
// such files anywhere on the user's machine.
func TestCVE_2019_11249(t *testing.T) {
	home := t.TempDir()
	outside, dest := filepath.Join(home, "outside"), filepath.Join(home, "work", "dest")
	for _, dir := range []string{outside, dest} {
		check(t, os.MkdirAll(dir, 0o755))
	}
	check(t, os.WriteFile(filepath.Join(outside, "there"), []byte("mine"), 0o600))
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	add := func(h tar.Header, content string) {
		h.Mode, h.Size = 0o644, int64(len(content))
		check(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, content)
		check(t, err)
	}
	add(tar.Header{Name: "data/good", Typeflag: tar.TypeReg}, "good")
	add(tar.Header{Name: "data/link", Typeflag: tar.TypeSymlink, Linkname: outside}, "")
	add(tar.Header{Name: "data/link/by-link", Typeflag: tar.TypeReg}, "evil")
	add(tar.Header{Name: "data/up", Typeflag: tar.TypeSymlink, Linkname: "../../outside"}, "")
	add(tar.Header{Name: "data/up/by-upward-link", Typeflag: tar.TypeReg}, "evil")
	add(tar.Header{Name: "data/file", Typeflag: tar.TypeSymlink, Linkname: filepath.Join(outside, "there")}, "")
	add(tar.Header{Name: "data/file", Typeflag: tar.TypeReg}, "evil")
	add(tar.Header{Name: "data/hard", Typeflag: tar.TypeLink, Linkname: filepath.Join(outside, "there")}, "")
	add(tar.Header{Name: "data/hard", Typeflag: tar.TypeReg}, "evil")
	add(tar.Header{Name: "data/../../../outside/by-path", Typeflag: tar.TypeReg}, "evil")
	add(tar.Header{Name: "data" + outside + "/../../outside/by-two-paths", Typeflag: tar.TypeReg}, "evil")
	add(tar.Header{Name: outside + "/by-root", Typeflag: tar.TypeReg}, "evil")
	for name, kind := range map[string]byte{"device": tar.TypeChar, "disk": tar.TypeBlock, "pipe": tar.TypeFifo} {
		add(tar.Header{Name: "data/" + name, Typeflag: kind, Devmajor: 1, Devminor: 3}, "")
	}
	check(t, w.Close())

	lab := newLab(t, reaching)
	lab.namespace(t, "a")
	lab.node(t, "n1", fakeKubelet(t, archiver{archive.Bytes()}))
	lab.pod(t, "a", "p", "n1", "192.0.2.10")
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: lab.Config.Host, CertificateAuthorityData: lab.Config.CAData}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: lab.Config.CertData,
		ClientKeyData: lab.Config.KeyData, Token: lab.Config.BearerToken}
	kubeconfig.Contexts["x"], kubeconfig.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u",
		Namespace: "a"}, "x"
	file := filepath.Join(home, "kubeconfig")
	check(t, clientcmd.WriteToFile(*kubeconfig, file))
	// ctl uses the copy command of kubectl's library, so the test calls the library.
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig = ptr.To(file)
	streams := genericiooptions.IOStreams{In: bytes.NewReader(nil), Out: io.Discard, ErrOut: io.Discard}
	f := cmdutil.NewFactory(cmdutil.NewMatchVersionFlags(flags))
	o := cp.NewCopyOptions(streams)
	check(t, o.Complete(f, cp.NewCmdCp(f, streams), []string{"a/p:/data", dest}))
	err := o.Run() // the client may reject the whole archive, or only its malicious parts
	if good, readErr := os.ReadFile(filepath.Join(dest, "good")); readErr != nil || string(good) != "good" {
		t.Errorf("the attack does not begin: %q, %v, %v", good, readErr, err)
	}
	for _, name := range []string{"device", "disk", "pipe"} {
		if info, err := os.Lstat(filepath.Join(dest, name)); err == nil && !info.Mode().IsRegular() {
			t.Errorf("%s was created: %v", name, info.Mode())
		}
	}
	entries, err := os.ReadDir(outside)
	check(t, err)
	if there, err := os.ReadFile(filepath.Join(outside, "there")); len(entries) != 1 || err != nil ||
		string(there) != "mine" {
		t.Errorf("outside there are %v, and the file has %q", entries, there)
	}
}
