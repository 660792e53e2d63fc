package prober

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

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
