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
	"time"

	"github.com/kdiag/kdiag/crictl"
	"k8s.io/client-go/tools/clientcmd/api"
)

// maxSkewTrip is the slowest answer whose Date gives the server's time to a second or two.
const maxSkewTrip = 2 * time.Second

// AskServer asks the API server that the kubelet's kubeconfig names whether it is ready, and, as this node, for the
// node's object and lease, all over one connection. It is the only connection that leaves the node, and it goes through
// no proxy. Programs that give credentials are not run, and then object and lease may not be read.
func AskServer(ctx context.Context, root string, s Settings) (Server, error) {
	c, unknown, err := newAPIClient(root, s)
	out := Server{URL: oneLine(c.base)}
	if err != nil {
		return out, fmt.Errorf("asking the API server: %w", err)
	}
	defer c.client.CloseIdleConnections()
	ready, err := c.get(ctx, "/readyz")
	out.readReady(ready, err)
	if !out.Reachable || unknown != nil {
		if out.Reachable {
			out.LeaseErr, out.NodeErr = unknown.Error(), unknown.Error()
		}
		return out, nil
	}
	name := url.PathEscape(s.NodeName)
	node, err := c.getOK(ctx, "/api/v1/nodes/"+name)
	out.readNode(node, err)
	lease, err := c.getOK(ctx, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+name)
	if err != nil {
		out.LeaseErr = reasonUnanswered(err)
	} else {
		out.readLease(lease, time.Now())
	}
	return out, nil
}

// newAPIClient returns a client for the API server of the kubelet's kubeconfig, and, if it cannot ask as this node,
// why. With an error only the address of the client may be known.
func newAPIClient(root string, s Settings) (c serverClient, unknown, err error) {
	if s.Kubeconfig == "" {
		return c, nil, errors.New("the kubelet has no kubeconfig")
	}
	if otherNetwork(root, s.PID) {
		return c, nil, errOtherNetwork
	}
	all := crictl.SeenBy(root, s.PID)
	cluster, u, err := readKubeconfig(all, s.Kubeconfig)
	if err != nil {
		return c, nil, err
	}
	base, err := url.Parse(cluster.Server)
	if err != nil || base.Host == "" {
		return c, nil, fmt.Errorf("%s names a server that is not a URL", oneLine(s.Kubeconfig))
	}
	base.User = nil
	c.base = strings.TrimSuffix(base.String(), "/")
	conf, err := handshake(all, cluster)
	if err != nil {
		return c, nil, err
	}
	unknown = useCertificate(all, current(all, &s, u), conf)
	if s.NodeName == "" {
		unknown = errors.New("the node's name is not known")
	}
	return newClient(c.base, conf), unknown, nil
}

// readReady takes over the answer of /readyz, or why there is none.
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

// readNode takes over the node's object, or why there is none.
func (s *Server) readNode(r reply, err error) {
	var node NodeObject
	malformed := json.Unmarshal(r.body, &node)
	s.NodeGone = r.status == http.StatusNotFound && node.Kind == "Status" // other servers say 404 too
	if err == nil && (malformed != nil || node.Kind != "Node") {
		err = errors.New("the answer is not a node")
	}
	if err != nil {
		s.NodeErr = reasonUnanswered(err)
		return
	}
	s.Node = &node
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
func handshake(all crictl.HostFiles, c *api.Cluster) (*tls.Config, error) {
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
func useCertificate(all crictl.HostFiles, u *api.AuthInfo, conf *tls.Config) error {
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
