package signature

import "testing"

func TestCertificateOwner(t *testing.T) {
	for _, tt := range []struct {
		record string
		want   Party
		no     bool // not about an expired certificate of the way to the API server
	}{
		{record: `"Failed to watch" err="Get \"https://10.0.0.1:6443/api/v1/nodes\": remote error: tls: expired certificate"`, want: KubeletParty},
		{record: `"part of the existing bootstrap client certificate in /etc/kubernetes/kubelet.conf is expired: 2026-11-19 00:00:00 +0000 UTC"`, want: KubeletParty},
		{record: `Get "https://10.0.0.1:6443/api/v1/nodes/n1": tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time`, want: APIServer},
		{record: `Get "https://api.example.org/apis/coordination.k8s.io/v1": x509: certificate has expired or is not yet valid`, want: APIServer},
		{record: `Failed to pull image: Get "https://registry.example.org/v2/": x509: certificate has expired or is not yet valid`},
		{record: `http: TLS handshake error from 10.0.0.7:4711: remote error: tls: expired certificate`, no: true},
		{record: `"Loaded the existing bootstrap client certificate"`, no: true},
	} {
		found := false
		for _, h := range NewMatcher().Match([]byte(tt.record), nil) {
			if h.Signature.Code != CertificateExpired {
				continue
			}
			found = true
			if h.Owner != tt.want {
				t.Errorf("%s\nis of %q, want %q", tt.record, h.Owner, tt.want)
			}
		}
		if found == tt.no {
			t.Errorf("%s\nfound: %v", tt.record, found)
		}
	}
}
