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
)

const (
	// serverTimeout is how long the API server may take for one answer. The kubelet itself gives it 10 s to renew a
	// lease.
	serverTimeout = 4 * time.Second
	// maxSkewTrip is the slowest answer whose Date gives the server's time to a second or two.
	maxSkewTrip = 2 * time.Second
)

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
	client, conf, err := apiClient(all, cluster)
	if err != nil {
		return out, fmt.Errorf("asking the API server: %w", err)
	}
	defer client.CloseIdleConnections()
	c := serverClient{client: client, base: strings.TrimSuffix(base.String(), "/"), timeout: serverTimeout}
	problem := useCertificate(all, current(all, &s, u), conf)
	if s.NodeName == "" {
		problem = errors.New("the node's name is not known")
	}
	var ready, lease reply
	var readyErr, leaseErr error
	var both sync.WaitGroup
	both.Go(func() { ready, readyErr = c.get(ctx, "/readyz", 4<<10) })
	if problem == nil {
		both.Go(func() {
			path := "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + url.PathEscape(s.NodeName)
			lease, leaseErr = c.get(ctx, path, maxAnswer)
		})
	}
	both.Wait()
	out.readReady(ready, readyErr)
	switch {
	case !out.Reachable:
	case problem != nil:
		out.LeaseErr = problem.Error()
	default:
		out.readLease(lease, leaseErr, time.Now())
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
func (s *Server) readLease(r reply, err error, now time.Time) {
	if err == nil {
		err = r.problem()
	}
	if err != nil {
		s.LeaseErr = reasonUnanswered(err)
		return
	}
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

// apiClient returns a client for the server of a kubeconfig, which it verifies as the kubelet does, and its handshake.
func apiClient(all files, c cluster) (*http.Client, *tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName, InsecureSkipVerify: c.SkipVerify}
	authority, err := either(all, c.AuthorityData, c.Authority)
	if err != nil {
		return nil, nil, err
	}
	if len(authority) > 0 {
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(authority) {
			return nil, nil, errors.New("the kubeconfig's certificate authority holds no certificate")
		}
	}
	return newClient(conf), conf, nil
}

// useCertificate adds the node's certificate to the handshake.
func useCertificate(all files, u user, conf *tls.Config) error {
	if u.Certificate == "" && len(u.CertificateData) == 0 {
		if u.Exec != nil {
			return errors.New("the kubelet gets its credential from a program, which kdiag does not run")
		}
		return errors.New("the kubeconfig has no client certificate")
	}
	pair, err := clientPair(all, u)
	conf.Certificates = []tls.Certificate{pair}
	return err
}
