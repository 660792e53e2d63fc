//go:build e2e

package syncloop

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
)

// metrics-server's questions, with its token: the usage of CPU and memory is that of the cgroups at that time.
func TestEndToEndMetrics(t *testing.T) {
	t.Parallel()
	n := newNode(t, 20)
	api := serverInMemory()
	client := api.node.(*fake.Client)
	react := func(kind string, answer func(o kruntime.Object)) {
		client.PrependReactor("create", kind, func(a clienttesting.Action) (bool, kruntime.Object, error) {
			o := a.(clienttesting.CreateAction).GetObject().DeepCopyObject()
			answer(o)
			return true, o, nil
		})
	}
	react("tokenreviews", func(o kruntime.Object) { // of users by the tokens for them
		r := o.(*authenticationv1.TokenReview)
		r.Status.Authenticated, r.Status.User.Username = r.Spec.Token != "unknown", r.Spec.Token
	})
	react("subjectaccessreviews", func(o kruntime.Object) {
		r := o.(*authorizationv1.SubjectAccessReview)
		a := r.Spec.ResourceAttributes
		r.Status.Allowed = r.Spec.User == "metrics-server" && a.Verb == "get" && a.Resource == "nodes" &&
			a.Name == e2eNode && (a.Subresource == "metrics" || a.Subresource == "stats")
	})
	n.cfg.Client, n.cfg.Register = client, true
	n.cfg.Kubelet.Authentication.Anonymous.Enabled, n.cfg.Kubelet.Authorization.Mode = false, "Webhook"
	const mib = 1 << 20
	p := newPod("busy", shell("c", "dd if=/dev/zero of=/memory/file bs=1M count=32; while :; do :; done"))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "memory", MountPath: "/memory"}}
	limit := resource.MustParse("64Mi")
	p.Spec.Volumes = []v1.Volume{{Name: "memory", VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &limit},
	}}}
	n.apply(p)
	n.start()
	n.awaitReady("busy")

	for token, want := range map[string]int{"": 401, "unknown": 401, "somebody": 403, "metrics-server": 200} {
		code, _ := n.ask("/metrics/resource", token)
		testkit.Equal(t, "code for "+token, want, code)
	}
	code, _ := n.ask("/pods", "metrics-server")
	testkit.Equal(t, "code of /pods", http.StatusForbidden, code)
	start := time.Now()
	before, set := n.used("busy")
	const ofContainer, ofPod = `\{container="c",namespace="shop",pod="busy-e2e"\}`, `\{namespace="shop",pod="busy-e2e"\}`
	samples := []struct {
		name, of    string
		least, most float64
		got         float64
	}{
		{name: "container_cpu_usage_seconds_total", of: ofContainer, least: before / 2}, // the sandbox has a share
		{name: "pod_cpu_usage_seconds_total", of: ofPod, least: before},
		{name: "container_memory_working_set_bytes", of: ofContainer, least: 32 * mib, most: 34 * mib},
		{name: "pod_memory_working_set_bytes", of: ofPod, least: 32 * mib},
		{
			name: "container_start_time_seconds", of: ofContainer,
			least: float64(start.Unix()) - 600, most: float64(start.Unix() + 1),
		},
		{name: "container_swap_usage_bytes", of: ofContainer, most: 1e9},
		{name: "pod_swap_usage_bytes", of: ofPod, most: 1e9},
		{name: "node_cpu_usage_seconds_total", least: before, most: 1e12},
		{name: "node_memory_working_set_bytes", least: 32 * mib, most: 1e15},
		{name: "resource_scrape_error"},
	}
	n.await("measurements since the start, with the whole file", func() error {
		_, text := n.ask("/metrics/resource", "metrics-server")
		for i := range samples {
			s := &samples[i]
			m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(s.name) + s.of + ` (\S+)(?: (\d+))?$`).FindStringSubmatch(text)
			if m == nil {
				return fmt.Errorf("no %s in %s", s.name, text)
			}
			var err error
			s.got, err = strconv.ParseFloat(m[1], 64)
			e2etest.Must(t, err)
			at, _ := strconv.ParseInt(m[2], 10, 64)
			if m[2] != "" && at < start.UnixMilli() || s.got < s.least {
				return fmt.Errorf("%s is %s, at least %f is wanted since %d", s.name, m[0], s.least, start.UnixMilli())
			}
		}
		return nil
	})
	after, set2 := n.used("busy")
	samples[0].most, samples[1].most, samples[3].most = after, after, max(set, set2)*1.05
	for _, s := range samples {
		if s.got > s.most {
			t.Errorf("%s is %f, at most %f is wanted", s.name, s.got, s.most)
		}
	}

	var summary statsapi.Summary
	n.await("a summary with a rate", func() error {
		_, text := n.ask("/stats/summary", "metrics-server")
		if err := json.Unmarshal([]byte(text), &summary); err != nil || len(summary.Pods) != 1 {
			return fmt.Errorf("%w: %s", err, text)
		}
		for _, c := range []*statsapi.CPUStats{
			summary.Node.CPU, summary.Pods[0].CPU, summary.Pods[0].Containers[0].CPU,
		} {
			if c == nil || c.UsageNanoCores == nil || *c.UsageNanoCores == 0 {
				return fmt.Errorf("%s", text)
			}
		}
		return nil
	})
}

// ask asks the server, with a token unless it is empty.
func (n *node) ask(path, token string) (int, string) {
	n.t.Helper()
	scheme := "http"
	if syncloop.Secure(n.cfg.Kubelet, n.cfg.Client != nil) {
		scheme = "https"
	}
	code, text, err := e2etest.Get(n.t.Context(), scheme+"://"+n.Addr().String()+path, token)
	e2etest.Must(n.t, err)
	return code, text
}

// used reads the CPU time in seconds and the working set in bytes of a BestEffort pod from its cgroups.
func (n *node) used(name string) (cpu, set float64) {
	n.t.Helper()
	number := func(text string) float64 {
		value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		e2etest.Must(n.t, err)
		return value
	}
	field := func(text, key string) float64 {
		_, text, _ = strings.Cut("\n"+text, "\n"+key+" ")
		text, _, _ = strings.Cut(text, "\n")
		return number(text)
	}
	for _, dir := range n.cgroups("kubepods/besteffort/pod" + string(n.pod(name).UID)) {
		read := func(file string) string {
			data, _ := os.ReadFile(dir + "/" + file)
			return string(data)
		}
		if text := read("cpuacct.usage"); text != "" {
			cpu = number(text) / 1e9
		}
		if text := read("memory.usage_in_bytes"); text != "" {
			set = number(text) - field(read("memory.stat"), "total_inactive_file")
		}
		if text := read("memory.current"); text != "" {
			cpu, set = field(read("cpu.stat"), "usage_usec")/1e6, number(text)-field(read("memory.stat"), "inactive_file")
		}
	}
	return cpu, set
}
