// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// port is the port of Prometheus in TestCluster. The next port is that of its proxy.
const port = "19390"

// prometheus is a running hack/monitoring/run.sh.
type prometheus struct {
	stop func()
}

// prometheus runs Prometheus with the rules in a file, and waits until it answers.
func (l *lab) prometheus(rules string) *prometheus {
	l.t.Helper()
	rules, err := filepath.Abs(rules) // the script changes its working directory
	if err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.Command(root+"/hack/monitoring/run.sh", clusterName)
	cmd.Env = append(os.Environ(), "PORT="+port, "RULES="+rules)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	p := &prometheus{stop: sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			l.t.Errorf("hack/monitoring/run.sh: %v\n%s", err, out.String())
		}
	})}
	l.t.Cleanup(p.stop)
	l.eventually("Prometheus is ready", func() bool {
		select {
		case err := <-ended:
			ended <- err
			l.t.Fatalf("Prometheus ended: %v\n%s", err, out.String())
		default:
		}
		r, err := http.Get("http://127.0.0.1:" + port + "/-/ready")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return p
}

// series is an element of an instant vector.
type series struct {
	Metric map[string]string
	Value  [2]any
}

// query returns the result of a PromQL expression, which must be an instant vector.
func (p *prometheus) query(t *testing.T, expr string) []series {
	t.Helper()
	r, err := http.Get("http://127.0.0.1:" + port + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []series }
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil || answer.Error != "" {
		t.Fatalf("%s: %v %s", expr, err, answer.Error)
	}
	return answer.Data.Result
}

// value returns the value of an expression that has at most one series, or 0 if it has none.
func (p *prometheus) value(t *testing.T, expr string) float64 {
	t.Helper()
	result := p.query(t, expr)
	if len(result) == 0 {
		return 0
	}
	text, _ := result[0].Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// firing returns the alerts that fire: name, severity, and if the alert has them, node and volume claim.
func (p *prometheus) firing(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, s := range p.query(t, `ALERTS{alertstate="firing"}`) {
		m := s.Metric
		out = append(out, strings.Join(strings.Fields(strings.Join([]string{
			m["alertname"], m["severity"], m["node"], m["persistentvolumeclaim"]}, " ")), " "))
	}
	slices.Sort(out)
	return out
}
