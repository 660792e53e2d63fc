package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd/api"
)

// maxSkewTrip is the slowest answer whose Date gives the server's time to a second or two.
const maxSkewTrip = 2 * time.Second

// AskServer asks the API server that the kubelet's kubeconfig names whether it is ready, and, as this node, for the
// node's lease. It is the only connection that leaves the node, and it goes through no proxy. Programs that give
// credentials are not run, and then the lease may not be read.
func AskServer(ctx context.Context, root string, s Settings) (Server, error) {
	if s.Kubeconfig == "" {
		return Server{}, errors.New("asking the API server: the kubelet has no kubeconfig")
	}
	if apart(root, s.PID, "net") {
		return Server{}, fmt.Errorf("asking the API server: %w", errOtherNetwork)
	}
	all := seenBy(root, s.PID)
	cluster, u, err := readKubeconfig(all, s.Kubeconfig)
	if err != nil {
		return Server{}, fmt.Errorf("asking the API server: %w", err)
	}
	base, err := url.Parse(cluster.Server)
	if err != nil || base.Host == "" {
		return Server{}, fmt.Errorf("asking the API server: %s names a server that is no URL", oneLine(s.Kubeconfig))
	}
	base.User = nil
	out := Server{URL: oneLine(base.String())}
	conf, err := handshake(all, cluster)
	if err != nil {
		return out, fmt.Errorf("asking the API server: %w", err)
	}
	unknown := useCertificate(all, current(all, &s, u), conf)
	if s.NodeName == "" {
		unknown = errors.New("the node's name is not known")
	}
	c := newClient(strings.TrimSuffix(base.String(), "/"), conf)
	var ready, lease reply
	var readyErr, leaseErr error
	var both sync.WaitGroup
	both.Go(func() { ready, readyErr = c.get(ctx, "/readyz", 4<<10) })
	if unknown == nil {
		both.Go(func() {
			lease, leaseErr = c.getOK(ctx, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+
				url.PathEscape(s.NodeName))
		})
	}
	both.Wait()
	out.readReady(ready, readyErr)
	switch {
	case !out.Reachable:
	case unknown != nil:
		out.LeaseErr = unknown.Error()
	case leaseErr != nil:
		out.LeaseErr = reasonUnanswered(leaseErr)
	default:
		out.readLease(lease, time.Now())
	}
	return out, nil
}

// readReady takes over what /readyz answered, or why it did not.
func (s *Server) readReady(r reply, err error) {
	s.Took = r.took
	if err != nil && r.status == 0 {
		s.TLSError, s.Err = whyNoAnswer(err)
		return
	}
	s.Reachable, s.Status = true, r.status
	if date, err := http.ParseTime(r.header.Get("Date")); err == nil && r.took <= maxSkewTrip {
		// The header is cut to the second, and was written at half of the way.
		server, here := date.Add(time.Second/2), r.start.Add(r.took/2)
		s.Skew, s.SkewKnown = server.Sub(here).Round(time.Second), true
	}
}

// readLease takes over the node's lease. The kubelet wrote its time, by the same clock as now.
func (s *Server) readLease(r reply, now time.Time) {
	var lease struct {
		Spec struct {
			RenewTime time.Time `json:"renewTime"`
		} `json:"spec"`
	}
	if json.Unmarshal(r.body, &lease) != nil || lease.Spec.RenewTime.IsZero() {
		s.LeaseErr = "the lease has no time of renewal"
		return
	}
	s.LeaseAge, s.LeaseRead = now.Sub(lease.Spec.RenewTime), true
}

// handshake verifies the server of a kubeconfig as the kubelet does.
func handshake(all files, c *api.Cluster) (*tls.Config, error) {
	conf := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: c.TLSServerName, InsecureSkipVerify: c.InsecureSkipTLSVerify,
	}
	authority, err := either(all, c.CertificateAuthorityData, c.CertificateAuthority)
	if err != nil || len(authority) == 0 {
		return conf, err
	}
	conf.RootCAs = x509.NewCertPool()
	if !conf.RootCAs.AppendCertsFromPEM(authority) {
		return nil, errors.New("the kubeconfig's certificate authority holds no certificate")
	}
	return conf, nil
}

// useCertificate adds the node's certificate to the handshake.
func useCertificate(all files, u *api.AuthInfo, conf *tls.Config) error {
	if u.ClientCertificate == "" && len(u.ClientCertificateData) == 0 {
		if u.Exec != nil {
			return errors.New("the kubelet gets its credential from a program, which kdiag does not run")
		}
		return errors.New("the kubeconfig has no client certificate")
	}
	pair, err := clientPair(all, u)
	conf.Certificates = []tls.Certificate{pair}
	return err
}
