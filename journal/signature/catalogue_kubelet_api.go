package signature

// apiEntries are about the way to the API server. None of them touches PLEG.
func apiEntries() []entry {
	inbound := []string{"nable to authenticate the request", "TLS handshake error from"}
	return []entry{
		{
			Signature: Signature{
				Code: APIServerFailed, Lane: Kubelet, Marker: Warning,
				Title: "calls to the API server failed",
				Means: "The kubelet could not report or watch. After 40 to 50 seconds without a lease the node becomes NotReady with status Unknown, " +
					"however healthy it is.",
				Versions: "All. Leases from 1.14.",
				Implies:  []string{"APIServerUnreachable"},
				Sources: []string{
					"pkg/kubelet/kubelet_node_status.go",
					"staging/src/k8s.io/component-helpers/apimachinery/lease/controller.go",
					"staging/src/k8s.io/client-go/tools/cache/reflector.go",
				},
			},
			forms: join(
				all("rror updating node status, will retry", "nable to update node status", "ailed to update lease",
					"ailed to update node lease", "ailed to ensure lease exists", "ailed to ensure node lease",
					"nable to register node with API server", "nable to write event"),
				[]form{
					{has: "ailed to watch *v1", not: []string{"too old resource version", "very short watch", " is forbidden: "}},
					{has: "ailed to list *v1", not: []string{" is forbidden: "}},
				},
			),
			reads: readCall,
		},
		{
			Signature: Signature{
				Code: CertificateExpired, Lane: Kubelet, Marker: Error,
				Title: "a certificate has expired",
				Means: "The kubelet's client certificate (\"remote error\", \"client certificate\"), or the API server's (\"failed to verify\"), is " +
					"not valid now. Also when the clock is wrong. Expired certificates of clients that call the kubelet are left out.",
				Versions: "All.",
				Implies:  []string{"CertificateExpired", "ClockJumped"},
				Sources:  []string{"crypto/x509", "pkg/kubelet/certificate/bootstrap/bootstrap.go"},
			},
			forms: unless(inbound, join(
				all("ertificate has expired or is not yet valid", "client certificate is expired", "certificate is expired",
					"urrent certificate is expired", "remote error: tls: expired certificate"),
				[]form{{has: "existing bootstrap client certificate", and: []string{"is expired"}}},
			)),
			reads: readOwner,
		},
		{
			Signature: Signature{
				Code: Unauthorized, Lane: Kubelet, Marker: Error,
				Title: "the API server rejects the kubelet",
				Means: "The kubelet's credentials are not accepted: expired or revoked certificate, deleted node, wrong cluster. Refused " +
					"image pulls and refused clients of the kubelet are left out.",
				Versions: "All.",
				Implies:  []string{"CertificateExpired", "APIServerUnreachable"},
				Sources:  []string{"staging/src/k8s.io/apimachinery/pkg/api/errors/errors.go"},
			},
			forms: unless(append(inbound, "401 Unauthorized", "mage", "egistry", "ulling", "robe failed"),
				all("Unauthorized", "provide credentials", "ser \"system:anonymous\"", "ser \\\"system:anonymous\\\"")),
		},
	}
}
