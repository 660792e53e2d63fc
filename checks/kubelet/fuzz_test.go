package kubelet

import (
	"strings"
	"testing"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/internal/testkit"
)

// FuzzText has one text in the place of every file and answer, and of the value of a flag.
func FuzzText(f *testing.F) {
	for _, seed := range []string{
		"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
		"-----BEGIN RSA PRIVATE KEY-----\nMAA=\n-----END RSA PRIVATE KEY-----\n",
		calico, `{"name":"n","type":"\u001b[31m"}`, `{"name":"n","plugins":[null]}`, "null", kubeletMetrics,
		"\nkubelet_pleg_last_seen_seconds 1e300\nkubelet_pleg_relist_duration_seconds_count NaN\n",
		kubeconfig("https://10.0.0.1:6443", "token: x"), kubeconfig("https://10.0.0.1:6443", "exec: {command: aws}"),
		"contexts: [{name: ''}]", "{", "", "maxPods: 1\n", "a: [\n", "kind: Pod\n", "a: &a [*a]\n",
		"evictionHard: {memory.available: 0%}\nauthentication: {anonymous: {}}\nlogging: {verbosity: 2}\n",
		"featureGates: {A: true}\n", "address: \"\\e[31m\"\n",
		`{"kind":"PodList","items":[{"metadata":{"uid":"u","name":"a","annotations":{"kubernetes.io/config.seen":"2026-01-01T00:00:00.1Z"},"deletionTimestamp":"2026-01-01T00:00:00Z"}}]}`,
		`{"port":70000,"healthzPort":-1,"maxParallelImagePulls":-7}`, "maxPods: many\n", "1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cert := newCertificate("client", "/x", []byte(text), nil)
		shown := []string{cert.Err, cert.Subject}
		if strings.Contains(cert.Err, "KEY") {
			t.Errorf("shows a key: %s", cert.Err)
		}
		for _, name := range []string{"10.conflist", "10.conf"} {
			if list, err := parseNetwork(name, []byte(text)); err == nil {
				c := CNI{BinDirs: []string{"/"}}
				c.fill(crictl.SeenBy(t.TempDir(), 0), list)
				shown = append(shown, append(c.Plugins, c.Name)...)
			}
		}
		m, errMetrics := parseMetrics([]byte(text))
		cluster, user, errConfig := parseKubeconfig([]byte(text))
		if (errMetrics == nil) != (m != nil) || (errConfig == nil) != (cluster != nil && user != nil) {
			t.Errorf("%+v, %v; %+v, %+v, %v", m, errMetrics, cluster, user, errConfig)
		}
		if errConfig != nil {
			shown = append(shown, errConfig.Error())
		}
		if pods, err := parsePods([]byte(text), nil); err != nil && pods != nil {
			t.Errorf("%+v, %v", pods, err)
		}
		flags := map[string][]string{"config": {"/k"}}
		for _, name := range []string{"max-pods", "eviction-hard", "feature-gates", "cgroup-driver"} {
			flags[name] = []string{text}
		}
		var s Settings
		config := kubeletconfig.Read(flags, kubeletconfig.Files{
			Read: func(string) ([]byte, error) { return []byte(text), nil },
		}, true)
		for _, p := range config.Problems {
			if p.Where == "" || p.Err == nil {
				t.Errorf("%+v", p)
			}
		}
		s.fill(&config.Config)
		harmful(&s)
		for _, text := range append(shown, s.Endpoint, s.CgroupDriver, s.Address, s.HealthzAddress) {
			testkit.Equal(t, "fit to be shown", oneLine(text), text)
		}
	})
}
