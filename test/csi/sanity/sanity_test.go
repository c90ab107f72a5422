// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package sanity

import (
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	suite "github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"keelson.dev/keelson/pkg/kubelet/localdisk"
	"keelson.dev/keelson/test/csi/driver"
	"keelson.dev/keelson/test/unshare"
)

func TestMain(m *testing.M) { unshare.Run(m, unshare.Mount) }

// kindOf is an environment variable. If it is set, the test process runs the suite for the driver
// that the value selects: network storage (the driver in test/csi), or the node's disk (the
// kubelet's own driver).
const kindOf = "KEELSON_SANITY_KIND"

// TestSanity runs the suite for each driver in a separate process, because the suite can run only
// once in a process.
func TestSanity(t *testing.T) {
	unshare.Need(t)
	if kind := os.Getenv(kindOf); kind != "" {
		run(t, kind)
		return
	}
	for _, kind := range []string{"network/mount", "network/block", "node/mount", "node/block"} {
		t.Run(kind, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestSanity$",
				"-ginkgo.no-color", "-ginkgo.succinct")
			cmd.Env = append(os.Environ(), kindOf+"="+kind)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// run starts the driver, and runs the suite with a connection to it. If the suite created the
// connection itself, it would wait for a change of the connection's state, which does not happen if
// the connection is ready immediately.
func run(t *testing.T, kind string) {
	dir, err := os.MkdirTemp("", "k") // a short directory name, because the path of a socket is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	where, access, _ := strings.Cut(kind, "/")
	size := int64(1 << 20)
	if where == "node" {
		size = 16 << 20
		root := filepath.Join(dir, "kubelet")
		if err := os.MkdirAll(filepath.Join(localdisk.Dir(root), "volumes"), 0o750); err != nil {
			t.Fatal(err)
		}
		localdisk.New(localdisk.Config{RootDir: root, NodeName: "n", Version: "1",
			Log: slog.New(slog.DiscardHandler)}).Serve(s)
	} else {
		(&driver.Driver{Name: "test.csi.keelson.dev", Node: "n", Root: filepath.Join(dir, "volumes")}).Serve(s)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}

	c := suite.NewTestConfig()
	c.TargetPath, c.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
	c.TestVolumeSize, c.TestVolumeExpandSize = size, 2*size
	c.TestVolumeAccessType = access
	specs := suite.GinkgoTest(&c)
	specs.Conn, specs.ControllerConn = conn, conn
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "driver")
	specs.Finalize()
}
