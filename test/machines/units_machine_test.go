// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"keelson.dev/keelson/test/machines/lab"
	"keelson.dev/keelson/test/unshare"
)

// mostExposed is the highest exposure, in tenths, that systemd may calculate for a program that runs no
// containers. 100 means that a program may do everything.
const mostExposed = "25"

// TestUnitsOnMachine checks that the systemd of a machine knows all settings of the units, and that it
// calculates a low exposure.
func TestUnitsOnMachine(t *testing.T) {
	if os.Getenv("KEELSON_MACHINES") == "" {
		t.Skip("KEELSON_MACHINES is not set")
	}
	unshare.NeedRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	image, err := exec.CommandContext(ctx, "../../hack/machines.sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.New(ctx, lab.Options{Dir: t.TempDir(), Name: "units", Image: string(bytes.TrimSpace(image))})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m, err := l.Boot(ctx, "m1")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.CopyIn(unitDir, "/etc/systemd/system"); err != nil {
		t.Fatal(err)
	}
	for _, p := range programs() { // systemd checks that the programs exist
		if _, err := m.Run(ctx, "install", "-D", "/bin/true", "/usr/lib/keelson/current/"+p.path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Run(ctx, "ln", "-s", "current", "/usr/lib/keelson/switching"); err != nil {
		t.Fatal(err)
	}
	out, err := m.Run(ctx, "sh", "-c", "systemd-analyze verify /etc/systemd/system/keelson* 2>&1")
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	for name, p := range programs() {
		if !p.strict {
			continue
		}
		out, err := m.Run(ctx, "systemd-analyze", "security", "--no-pager", "--threshold="+mostExposed, "keelson-"+name)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
