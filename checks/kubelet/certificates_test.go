package kubelet

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadCertificates(t *testing.T) {
	authority := newIssuer(t)
	from, to := time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	client, key := authority.pair("system:node:worker-1", from, to)
	newest, newestKey := authority.pair("system:node:worker-1", to, to.AddDate(1, 0, 0))
	serving, _ := authority.pair("worker-1@1700000000", from, to)
	inKubeconfig := "client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n    client-key: /x"
	for _, tc := range []struct {
		name     string
		host     func(tree)
		settings Settings
		want     []Certificate
	}{
		{
			"kubeadm: a link, key and certificate in one file, and one that the kubelet signed",
			func(h tree) {
				h.file("etc/kubernetes/kubelet.conf", kubeconfig("https://127.0.0.1:1", inKubeconfig))
				h.file("var/lib/kubelet/pki/kubelet-client-2025.pem", client+key)
				h.link("/var/lib/kubelet/pki/kubelet-client-2025.pem", "var/lib/kubelet/pki/kubelet-client-current.pem")
				h.file("var/lib/kubelet/pki/kubelet.crt", serving+authority.pem)
			},
			Settings{PID: 1, Kubeconfig: "/etc/kubernetes/kubelet.conf", CertDir: "/var/lib/kubelet/pki"},
			[]Certificate{
				{Role: "client", Path: "/var/lib/kubelet/pki/kubelet-client-current.pem", Subject: "system:node:worker-1", NotBefore: from, NotAfter: to},
				{Role: "serving", Path: "/var/lib/kubelet/pki/kubelet.crt", Subject: "worker-1@1700000000", NotBefore: from, NotAfter: to},
			},
		},
		{
			"no kubelet runs: where kubeadm has them",
			func(h tree) {
				h.file("etc/kubernetes/kubelet.conf", kubeconfig("https://127.0.0.1:1", inKubeconfig))
				h.file("var/lib/kubelet/pki/kubelet-client-current.pem", key+client)
				h.file("var/lib/kubelet/pki/kubelet-server-current.pem", serving)
			},
			Settings{},
			[]Certificate{
				{Role: "client", Path: "/var/lib/kubelet/pki/kubelet-client-current.pem", Subject: "system:node:worker-1", NotBefore: from, NotAfter: to},
				{Role: "serving", Path: "/var/lib/kubelet/pki/kubelet-server-current.pem", Subject: "worker-1@1700000000", NotBefore: from, NotAfter: to},
			},
		},
		{
			"EKS: a program instead of a certificate, and a file for serving",
			func(h tree) {
				h.file("kubeconfig", kubeconfig("https://127.0.0.1:1", "exec: {command: aws}"))
				h.file("etc/s.crt", serving)
			},
			Settings{PID: 1, Kubeconfig: "/kubeconfig", CertDir: "/pki", TLSCertFile: "/etc/s.crt"},
			[]Certificate{{Role: "serving", Path: "/etc/s.crt", Subject: "worker-1@1700000000", NotBefore: from, NotAfter: to}},
		},
		{
			"an old pair in the kubeconfig of a kubelet that rotates",
			func(h tree) {
				h.file("kubeconfig", kubeconfig("https://127.0.0.1:1", embedded(client, key)))
				h.file("pki/kubelet-client-current.pem", newest+newestKey)
				h.file("pki/kubelet.crt", serving)
			},
			Settings{PID: 1, Kubeconfig: "/kubeconfig", CertDir: "/pki", RotateClient: true},
			[]Certificate{
				{Role: "client", Path: "/kubeconfig", Subject: "system:node:worker-1", NotBefore: from, NotAfter: to},
				{Role: "client", Path: "/pki/kubelet-client-current.pem", Subject: "system:node:worker-1", NotBefore: to, NotAfter: to.AddDate(1, 0, 0)},
				{Role: "serving", Path: "/pki/kubelet.crt", Subject: "worker-1@1700000000", NotBefore: from, NotAfter: to},
			},
		},
		{
			"one for serving that the kubelet was given, and does not ask for any more",
			func(h tree) {
				h.file("pki/kubelet-server-current.pem", client)
				h.file("pki/kubelet.crt", serving)
			},
			Settings{PID: 1, CertDir: "/pki"},
			[]Certificate{{Role: "serving", Path: "/pki/kubelet.crt", Subject: "worker-1@1700000000", NotBefore: from, NotAfter: to}},
		},
		{
			"one for serving that the kubelet asked for",
			func(h tree) {
				h.file("pki/kubelet-server-current.pem", serving)
				h.file("pki/kubelet.crt", client)
			},
			Settings{PID: 1, CertDir: "/pki", RotateServing: true},
			[]Certificate{{Role: "serving", Path: "/pki/kubelet-server-current.pem", Subject: "worker-1@1700000000", NotBefore: from, NotAfter: to}},
		},
		{
			"one for serving, and whether the kubelet asks for it is not known",
			func(h tree) {
				h.file("pki/kubelet-server-current.pem", serving)
				h.file("pki/kubelet.crt", client)
			},
			Settings{PID: 1, CertDir: "/pki", Problems: []string{"/k.yaml may not be read by this user"}},
			[]Certificate{{Role: "serving", Path: "/pki/kubelet-server-current.pem", Subject: "worker-1@1700000000", NotBefore: from, NotAfter: to}},
		},
		{
			"what cannot be read is said",
			func(h tree) {
				h.file("kubeconfig", kubeconfig("https://127.0.0.1:1", "client-certificate: /none.pem"))
				h.file("pki/kubelet.crt", key)
			},
			Settings{PID: 1, Kubeconfig: "/kubeconfig", CertDir: "/pki"},
			[]Certificate{
				{Role: "client", Path: "/none.pem", Err: "does not exist"},
				{Role: "serving", Path: "/pki/kubelet.crt", Err: "holds no certificate"},
			},
		},
		{
			"standalone", func(h tree) { h.file("pki/kubelet.crt", serving) },
			Settings{PID: 1, CertDir: "/pki"},
			[]Certificate{{Role: "serving", Path: "/pki/kubelet.crt", Subject: "worker-1@1700000000", NotBefore: from, NotAfter: to}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newTree(t)
			tc.host(h)
			got, err := ReadCertificates(t.Context(), h.root, tc.settings)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestReadCertificatesOfNothing(t *testing.T) {
	got, err := ReadCertificates(t.Context(), t.TempDir(), Settings{})
	if err == nil || got != nil {
		t.Errorf("got %v, error %v", got, err)
	}
	// One that is there and cannot be read is not one that is not there.
	h := newTree(t)
	h.file("var/lib/kubelet/pki/kubelet.crt/x", "") // a folder
	got, err = ReadCertificates(t.Context(), h.root, Settings{})
	want := []Certificate{
		{Role: "client", Path: "/var/lib/kubelet/pki/kubelet-client-current.pem", Err: "does not exist"},
		{Role: "serving", Path: "/var/lib/kubelet/pki/kubelet.crt", Err: "is not a regular file"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got)\n%s", err, diff)
	}
}

func FuzzCertificate(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN RSA PRIVATE KEY-----\nMAA=\n-----END RSA PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := newCertificate("client", "/x", data, nil)
		if c.Err != oneLine(c.Err) || c.Subject != oneLine(c.Subject) || strings.Contains(c.Err, "KEY") {
			t.Errorf("%+v", c)
		}
	})
}
