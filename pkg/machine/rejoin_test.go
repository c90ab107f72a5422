// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/machine/nodes"
	"keelson.dev/keelson/pkg/machine/rejoin"
	"keelson.dev/keelson/pkg/restorehold"
)

// TestKeepNode checks that the Node of a control plane that joins a restored cluster has the label of control
// planes afterwards, whatever the restored store has.
func TestKeepNode(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	a := administrator{client: s.Client}
	c := example()
	list := s.Client.CoreV1().Nodes()
	labels := map[string]string{nodes.ControlPlaneLabel: ""}
	annotations := map[string]string{restorehold.Placeholder: ""}
	for name, tc := range map[string]struct {
		stored *v1.Node
		want   error
	}{
		"none":              {},
		"that of a kubelet": {stored: &v1.Node{}},
		"that of before":    {stored: &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}},
		"one that the restore made": {stored: &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}},
			want: errPlaceholder},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.stored != nil {
				tc.stored.Name = c.Node.Name
				if _, err := list.Create(t.Context(), tc.stored, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err := a.keepNode(t.Context(), c); !errors.Is(err, tc.want) {
					t.Errorf("error %v, want %v", err, tc.want)
				}
			}
			n, err := list.Get(t.Context(), c.Node.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := n.Labels[nodes.ControlPlaneLabel]; ok != (tc.want == nil) {
				t.Errorf("labels %v", n.Labels)
			}
			if err := list.Delete(t.Context(), c.Node.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestNoRestored checks that the remedy for a restored machine that is gone again names the directory with the
// history before the restore, wherever the control plane is on its way.
func TestNoRestored(t *testing.T) {
	const latest = "/before-restore-elsewhere-10"
	for name, tc := range map[string]struct {
		entry *rejoin.Entry
		gone  bool // the store was moved, and not replaced
		want  string
	}{
		"nothing has happened":      {entry: &rejoin.Entry{Step: rejoin.Stop}, want: "/"},
		"stopped":                   {entry: &rejoin.Entry{Step: rejoin.SetAside}, want: "/"},
		"set aside":                 {entry: &rejoin.Entry{Step: rejoin.Join}, gone: true, want: latest},
		"joining":                   {entry: &rejoin.Entry{Step: rejoin.Join}, want: latest},
		"restored again, set aside": {entry: &rejoin.Entry{Step: rejoin.Stop}, gone: true, want: latest},
		"restored again, copied":    {entry: &rejoin.Entry{Step: rejoin.SetAside, Copied: true}, want: latest},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			names := []string{asideOf(9), asideOf(10), "before-restore-20261201T000000Z"}
			if !tc.gone {
				names = append(names, storeData)
			}
			mkdirs(t, dir, names...)
			j := rejoin.Journal(filepath.Join(dir, "journal"))
			if err := j.Save(tc.entry); err != nil {
				t.Fatal(err)
			}
			err := noRestored(dir, j)
			want := "ctl restore --from-data-dir " + strings.TrimSuffix(dir+tc.want, "/")
			if !errors.Is(err, errNoRestored) || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

// TestRejoinCondition checks that the condition has the step and its error, and at the end how many control planes the
// cluster can lose, as "ctl join --control-plane" prints it.
func TestRejoinCondition(t *testing.T) {
	for name, tc := range map[string]struct {
		entry  *rejoin.Entry
		err    error
		voters int
		reason string
		want   string // in the message
	}{
		"a step": {entry: &rejoin.Entry{Epoch: 7, Step: rejoin.Vote}, reason: "Vote",
			want: "joins the cluster that was restored with the epoch 7"},
		"a failure": {entry: &rejoin.Entry{Epoch: 7, Step: rejoin.Stop}, err: errNoEtcdAuthority, reason: "Stop",
			want: `run "ctl reset"`},
		"one of two": {voters: 2, reason: v1alpha1.ReasonMember, want: "the epoch 9. " + survival(2)},
		"unknown":    {reason: v1alpha1.ReasonMember, want: "has joined the cluster that was restored with the epoch 9"},
	} {
		t.Run(name, func(t *testing.T) {
			c := rejoinCondition(tc.entry, tc.err, 9, tc.voters)
			joined := c.Status == metav1.ConditionTrue
			if joined != (tc.entry == nil) || c.Reason != tc.reason || !strings.Contains(c.Message, tc.want) {
				t.Errorf("condition %+v", c)
			}
		})
	}
}

func mkdirs(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(dir, name, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPruneAside checks that the latest two stores from before restores elsewhere are kept, and everything else.
func TestPruneAside(t *testing.T) {
	dir := t.TempDir()
	keeps := func(want ...string) {
		t.Helper()
		if err := pruneAside(dir); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if !slices.Equal(got, want) {
			t.Errorf("kept %q, want %q", got, want)
		}
	}
	keeps()
	mkdirs(t, dir, "before-restore-20261201T000000Z", "before-restore-elsewhere-x", "member", asideOf(9))
	keeps("before-restore-20261201T000000Z", "before-restore-elsewhere-9", "before-restore-elsewhere-x", "member")
	mkdirs(t, dir, asideOf(10), asideOf(8), asideOf(100))
	keeps("before-restore-20261201T000000Z", "before-restore-elsewhere-10", "before-restore-elsewhere-100",
		"before-restore-elsewhere-x", "member")
}

// TestNotRejoining checks that a machine is free for other work unless its control plane joins a restored cluster,
// or its journal cannot be read. The error says how the machine gets out of that.
func TestNotRejoining(t *testing.T) {
	for content, free := range map[string]bool{"": true, "{": false, `{"epoch": 7, "step": "Join"}`: false} {
		file := filepath.Join(t.TempDir(), "journal")
		if content != "" {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := notRejoining(rejoin.Journal(file))
		if (err == nil) != free || err != nil && !strings.Contains(err.Error(), `run "ctl reset"`) {
			t.Errorf("journal %q: %v", content, err)
		}
	}
}
