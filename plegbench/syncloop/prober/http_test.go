package prober

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestHTTPRequest(t *testing.T) {
	get := v1.HTTPGetAction{Path: "/a?b=1", Port: intstr.FromString("web"), Scheme: v1.URISchemeHTTPS}
	c := &v1.Container{Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 81}, {Name: "web", ContainerPort: 82}}}
	own := get
	own.Host = "other"
	own.HTTPHeaders = []v1.HTTPHeader{{Name: "host", Value: "shop"}, {Name: "user-agent", Value: "me"}, {Name: "accept", Value: ""}, {Name: "x", Value: "1"}, {Name: "X", Value: "2"}}
	for _, tt := range []struct {
		get    v1.HTTPGetAction
		url    string
		host   string
		header http.Header
	}{
		{get, "https://192.0.2.1:81/a?b=1", "", http.Header{"User-Agent": {userAgent}, "Accept": {"*/*"}}},
		{own, "https://other:81/a?b=1", "shop", http.Header{"Host": {"shop"}, "User-Agent": {"me"}, "X": {"1", "2"}}},
	} {
		req, err := request(t.Context(), &tt.get, c, "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		if req.URL.String() != tt.url || req.Host != tt.host {
			t.Errorf("%s for %q, want %s for %q", req.URL, req.Host, tt.url, tt.host)
		}
		if diff := cmp.Diff(tt.header, req.Header); diff != "" {
			t.Error(diff)
		}
	}
}

func TestPort(t *testing.T) {
	c := &v1.Container{Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 81}}}
	for in, want := range map[intstr.IntOrString]int{
		intstr.FromInt32(80): 80, intstr.FromString("web"): 81, intstr.FromString("82"): 82,
		intstr.FromInt32(0): 0, intstr.FromInt32(65536): 0, intstr.FromString("grpc"): 0,
	} {
		got, err := portOf(in, c)
		if got != want || (err != nil) != (want == 0) || err != nil && err.Error() != "invalid port number: "+in.String() {
			t.Errorf("%s: %d, %v", in.String(), got, err)
		}
	}
}

func FuzzHTTPRequest(f *testing.F) {
	for _, path := range []string{"", "/", "healthz?x=1", "http://elsewhere/x", "//elsewhere/x", "/a%zz", "A:00", "\x00"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		req, err := request(t.Context(), &v1.HTTPGetAction{Path: path, Port: intstr.FromInt32(80)}, &v1.Container{}, "192.0.2.1")
		// A path that looks like a whole URL may lose the host, which is a failure; it cannot choose another.
		if err == nil && req.URL.Host != "" && req.URL.Host != "192.0.2.1:80" {
			t.Errorf("%q goes to %s", path, req.URL.Host)
		}
	})
}
