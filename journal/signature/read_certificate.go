package signature

import "strings"

// A Party is one end of the connection between kubelet and API server.
type Party string

// The parties.
const (
	KubeletParty Party = "kubelet"
	APIServer    Party = "API server"
)

// ownerOf returns the owner of the certificate that has expired. An alert that comes from remote, and words of a
// client certificate, are about the kubelet's own; what the kubelet fails to verify, in a call to the API, is the
// server's. Registries and others are nobody's.
//
//	remote error: tls: expired certificate
//	part of the existing bootstrap client certificate in /etc/kubernetes/kubelet.conf is expired: 2026-11-19 ...
//	Get "https://10.0.0.1:6443/api/v1/nodes/n1": tls: ... x509: certificate has expired or is not yet valid
func ownerOf(s string) Party {
	switch {
	case strings.Contains(s, "remote error: tls: expired certificate"), strings.Contains(s, "client certificate"):
		return KubeletParty
	case !strings.Contains(s, "x509: "):
		return ""
	case strings.Contains(s, "/api/"), strings.Contains(s, "/apis/"), strings.Contains(s, ":6443"):
		return APIServer
	}
	return ""
}
