package runoptions

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const nodeConf = `# a comment
nameserver 9.9.9.9
nameserver fd00::53
nameserver
search lost.example
search example.org. . example.net
options ndots:2 edns0
options ndots:3
sortlist 1.2.3.4
`

func TestDNS(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte(nodeConf), 0o644); err != nil {
		t.Fatal(err)
	}
	node := &runtimeapi.DNSConfig{
		Servers: []string{"9.9.9.9", "fd00::53"}, Searches: []string{"example.org", "example.net"}, Options: []string{"edns0", "ndots:3"},
	}
	cluster := &runtimeapi.DNSConfig{
		Servers: []string{"10.96.0.10"}, Options: []string{"ndots:5"},
		Searches: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.org", "example.net"},
	}
	own := &v1.PodDNSConfig{
		Nameservers: []string{"1.1.1.1", "10.96.0.10"}, Searches: []string{"own.example", "example.org"},
		Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: new("1")}, {Name: "rotate"}},
	}
	tests := []struct {
		name        string
		policy      v1.DNSPolicy
		hostNetwork bool
		noCluster   bool
		noConf      bool
		own         *v1.PodDNSConfig
		want        *runtimeapi.DNSConfig
		event       string
	}{
		{name: "default", policy: v1.DNSDefault, want: node},
		{name: "cluster", policy: v1.DNSClusterFirst, want: cluster},
		{name: "cluster, host network", policy: v1.DNSClusterFirst, hostNetwork: true, want: node},
		{name: "cluster with host network", policy: v1.DNSClusterFirstWithHostNet, hostNetwork: true, want: cluster},
		{name: "unknown", policy: "Odd", want: cluster},
		{name: "none", policy: v1.DNSNone, want: &runtimeapi.DNSConfig{}},
		{name: "no cluster", policy: v1.DNSClusterFirst, noCluster: true, want: node, event: "Warning MissingClusterDNS pod: \"shop/web\". kubelet does not have"},
		{name: "no file", policy: v1.DNSDefault, noConf: true, want: &runtimeapi.DNSConfig{Servers: []string{"127.0.0.1", "::1"}, Searches: []string{"."}}},
		{name: "none and own", policy: v1.DNSNone, own: own, want: &runtimeapi.DNSConfig{
			Servers: own.Nameservers, Searches: own.Searches, Options: []string{"ndots:1", "rotate"},
		}},
		{name: "cluster and own", policy: v1.DNSClusterFirst, own: own, want: &runtimeapi.DNSConfig{
			Servers: []string{"10.96.0.10", "1.1.1.1"}, Options: []string{"ndots:1", "rotate"}, Searches: append(cluster.Searches[:5:5], "own.example"),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, recorder := newOptions(t, nil)
			if o.cfg.ResolvConf = conf; tt.noConf {
				o.cfg.ResolvConf = ""
			}
			if o.cfg.ClusterDNS = []string{"10.96.0.10"}; tt.noCluster {
				o.cfg.ClusterDNS = nil
			}
			p := newPod()
			p.Spec.DNSPolicy, p.Spec.HostNetwork, p.Spec.DNSConfig = tt.policy, tt.hostNetwork, tt.own
			got, err := o.DNS(p)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := drain(recorder.Events); !strings.HasPrefix(got, tt.event) || (got == "") != (tt.event == "") {
				t.Errorf("event %q, want %q", got, tt.event)
			}
		})
	}
}

func drain(events chan string) string {
	select {
	case e := <-events:
		return e
	default:
		return ""
	}
}

func TestDNSLimits(t *testing.T) {
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("d%02d.example", i))
	}
	long := strings.Repeat("x", 254)
	wide := strings.Repeat("y", 250)
	var tooWide []string
	for i := range 10 {
		tooWide = append(tooWide, fmt.Sprint(i, wide))
	}
	tests := []struct {
		name           string
		servers        []string
		searches       []string
		wantServers    int
		wantSearches   []string
		wantEventAbout string
	}{
		{name: "just fits", servers: many[:3], searches: many[:32], wantServers: 3, wantSearches: many[:32]},
		{name: "servers", servers: many[:4], wantServers: 3, wantEventAbout: "Nameserver limits were exceeded"},
		{name: "searches", searches: many, wantSearches: many[:32], wantEventAbout: "Search Line limits were exceeded"},
		{name: "one too long", searches: []string{"a", long, "b"}, wantSearches: []string{"a", "b"}, wantEventAbout: "the applied search line is: a b"},
		{name: "too wide", searches: tooWide, wantSearches: tooWide[:8], wantEventAbout: "Search Line"}, // 8 * 251 + 7 characters
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, recorder := newOptions(t, nil)
			p := newPod()
			p.Spec.DNSPolicy, p.Spec.DNSConfig = v1.DNSNone, &v1.PodDNSConfig{Nameservers: tt.servers, Searches: tt.searches}
			got, err := o.DNS(p)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Servers) != tt.wantServers {
				t.Errorf("%d servers, want %d", len(got.Servers), tt.wantServers)
			}
			if diff := cmp.Diff(tt.wantSearches, got.Searches); diff != "" {
				t.Errorf("searches (-want +got):\n%s", diff)
			}
			if e := drain(recorder.Events); !strings.Contains(e, tt.wantEventAbout) || (e == "") != (tt.wantEventAbout == "") {
				t.Errorf("event %q, want %q", e, tt.wantEventAbout)
			}
		})
	}
	o, _ := newOptions(t, nil)
	o.cfg.ResolvConf = "/nonexistent/resolv.conf"
	if _, err := o.DNS(newPod()); err == nil {
		t.Error("a node without its resolv.conf is no error")
	}
}

func FuzzParseResolvConf(f *testing.F) {
	f.Add(nodeConf)
	f.Add("nameserver\nsearch\noptions")
	f.Fuzz(func(t *testing.T, text string) {
		servers, searches, options := parseResolvConf(text)
		for _, list := range [][]string{servers, searches, options} {
			for _, s := range list {
				if strings.ContainsAny(s, " \t\n") || !strings.Contains(text, s) {
					t.Errorf("%q out of %q", s, text)
				}
			}
		}
		names := map[string]bool{}
		for _, option := range options {
			name, _, _ := strings.Cut(option, ":")
			if names[name] {
				t.Errorf("option %q is there twice", name)
			}
			names[name] = true
		}
	})
}
