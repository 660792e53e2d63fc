package kubelet

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kubeconfig is one as kubeadm writes it, with what the user has.
func kubeconfig(server, user string) string {
	return `apiVersion: v1
kind: Config
clusters:
- name: other
  cluster: {server: "https://192.0.2.1"}
- name: kubernetes
  cluster:
    server: ` + server + `
    certificate-authority: ca.crt
contexts:
- name: system:node:worker-1@kubernetes
  context: {cluster: kubernetes, user: system:node:worker-1}
current-context: system:node:worker-1@kubernetes
users:
- name: system:node:worker-1
  user:
    ` + user + "\n"
}

func TestReadKubeconfig(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		cluster    cluster
		user       user
	}{
		{
			"kubeadm", kubeconfig("https://10.0.0.1:6443", "client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem"),
			cluster{Server: "https://10.0.0.1:6443", Authority: "/etc/kubernetes/ca.crt"},
			user{Certificate: "/var/lib/kubelet/pki/kubelet-client-current.pem", Key: "/var/lib/kubelet/pki/kubelet-client-current.pem"},
		},
		{
			"EKS", kubeconfig("https://x.eks.amazonaws.com", "exec:\n      apiVersion: client.authentication.k8s.io/v1beta1\n      command: /usr/bin/aws-iam-authenticator\n      args: [token, -i, c]"),
			cluster{Server: "https://x.eks.amazonaws.com", Authority: "/etc/kubernetes/ca.crt"},
			user{Exec: &struct{}{}},
		},
		{
			"K3s, data in place", kubeconfig("https://127.0.0.1:6444", "client-certificate-data: Y2VydA==\n    client-key-data: a2V5"),
			cluster{Server: "https://127.0.0.1:6444", Authority: "/etc/kubernetes/ca.crt"},
			user{CertificateData: []byte("cert"), KeyData: []byte("key")},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newTree(t)
			h.file("etc/kubernetes/kubelet.conf", tc.text)
			c, u, err := readKubeconfig(seenBy(h.root, 0), "/etc/kubernetes/kubelet.conf")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.cluster, c); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.user, u); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseKubeconfigTellsNoSecret(t *testing.T) {
	for _, text := range []string{"users: [{user: {token: [geheim]}}]\n", "geheim: {\n", "users: geheim\n", "current-context: geheim\n"} {
		_, _, err := parseKubeconfig([]byte(text))
		if err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte(kubeconfig("https://10.0.0.1:6443", "token: x")))
	f.Add([]byte(kubeconfig("https://10.0.0.1:6443", "exec: {command: aws}")))
	f.Add([]byte("contexts: [{name: ''}]"))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, _, err := parseKubeconfig(data); err != nil && err.Error() != oneLine(err.Error()) {
			t.Errorf("%q is not fit to be shown", err)
		}
	})
}
