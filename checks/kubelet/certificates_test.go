package kubelet

import (
	"testing"
	"time"

	"github.com/kdiag/kdiag/internal/testkit"
)

func TestReadCertificates(t *testing.T) {
	const (
		pki     = "var/lib/kubelet/pki/"
		current = "/" + pki + "kubelet-client-current.pem"
	)
	authority := newIssuer(t)
	from, to := time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	client, key := authority.pair("system:node:worker-1", from, to)
	serving, _ := authority.pair("worker-1@1700000000", from, to)
	kubeadm := kubeconfig("https://127.0.0.1:1", "client-certificate: "+current+"\n    client-key: /x")
	of := func(role, path string) Certificate {
		c := Certificate{Role: role, Path: path, Subject: "system:node:worker-1", NotBefore: from, NotAfter: to}
		if role == "serving" {
			c.Subject = "worker-1@1700000000"
		}
		return c
	}
	for _, tc := range []struct {
		name     string
		files    []string
		settings Settings
		want     []Certificate
	}{
		{
			"kubeadm: key and certificate in one file, and one that the kubelet signed",
			[]string{
				"etc/kubernetes/kubelet.conf", kubeadm, current, client + key,
				pki + "kubelet.crt", serving + authority.pem,
			},
			Settings{PID: 1, Kubeconfig: "/etc/kubernetes/kubelet.conf", CertDir: "/" + pki},
			[]Certificate{of("client", current), of("serving", "/"+pki+"kubelet.crt")},
		},
		{
			"a file for serving",
			[]string{"etc/s.crt", serving},
			Settings{PID: 1, CertDir: "/pki", TLSCertFile: "/etc/s.crt"},
			[]Certificate{of("serving", "/etc/s.crt")},
		},
		{
			"one for serving that the kubelet was given, and does not ask for any more",
			[]string{"pki/kubelet-server-current.pem", client, "pki/kubelet.crt", serving},
			Settings{PID: 1, CertDir: "/pki"},
			[]Certificate{of("serving", "/pki/kubelet.crt")},
		},
		{
			"what cannot be read",
			[]string{
				"kubeconfig", kubeconfig("https://127.0.0.1:1", "client-certificate: /none.pem"),
				"pki/kubelet.crt", key,
			},
			Settings{PID: 1, Kubeconfig: "/kubeconfig", CertDir: "/pki"},
			[]Certificate{
				{Role: "client", Path: "/none.pem", Err: "does not exist"},
				{Role: "serving", Path: "/pki/kubelet.crt", Err: "holds no certificate"},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := testkit.NewTree(t)
			h.Write(tc.files...)
			got, err := ReadCertificates(t.Context(), h.Root, tc.settings)
			must(t, err)
			equal(t, tc.want, got)
		})
	}
}
