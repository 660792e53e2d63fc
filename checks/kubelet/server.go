package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/together"
)

const (
	// serverTimeout is how long the API server may take for one answer. The kubelet itself gives it 10 s to renew a lease.
	serverTimeout = 4 * time.Second
	// maxSkewTrip is the slowest answer whose Date tells the server's time to a second or two.
	maxSkewTrip = 2 * time.Second
	maxAnswer   = 256 << 10 // bytes of an answer that is read whole; a lease has some 2 KiB
)

// AskServer asks the API server that the kubelet's kubeconfig names whether it is ready, and, as this node, for the node's
// lease. It is the only look that leaves the node. Environment variables name no proxy here: the kubeconfig's proxy-url does.
// Programs that give credentials are not run, and then the lease may not be read.
func AskServer(ctx context.Context, root string, s Settings) (Server, error) {
	if s.Kubeconfig == "" {
		return Server{}, errors.New("asking the API server: the kubelet has no kubeconfig")
	}
	if elsewhere(root, s.PID) {
		return Server{}, errors.New("asking the API server: the kubelet is in another network namespace than kdiag; run kdiag with the host's network")
	}
	all := seenBy(root, s.PID)
	c, u, err := readKubeconfig(all, s.Kubeconfig)
	if err != nil {
		return Server{}, fmt.Errorf("asking the API server: %w", err)
	}
	base, err := url.Parse(c.Server)
	if err != nil || base.Host == "" {
		return Server{}, fmt.Errorf("asking the API server: %s names a server that is no URL", oneLine(s.Kubeconfig))
	}
	base.User = nil
	out := Server{URL: oneLine(base.String())}
	client, err := serverClient(all, c)
	if err != nil {
		return out, fmt.Errorf("asking the API server: %w", err)
	}
	transport := client.Transport.(*http.Transport)
	defer transport.CloseIdleConnections()
	token, identified, problem := credential(all, knownBy(all, &s, u), transport.TLSClientConfig)
	if base.Scheme != "https" {
		token = "" // which would be readable on the way
	}
	ask := func(path string, limit int64) (reply, error) {
		return fetch(ctx, client, base.JoinPath(path).String(), token, serverTimeout, limit)
	}
	if s.NodeName == "" {
		identified, problem = false, "the node's name is not known"
	}
	var ready, lease reply
	var readyErr, leaseErr error
	var wg together.Group
	wg.Go(func() { ready, readyErr = ask("/readyz", 4<<10) })
	if identified {
		wg.Go(func() {
			lease, leaseErr = ask("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+url.PathEscape(s.NodeName), maxAnswer)
		})
	}
	wg.Wait()
	out.judgeReply(ready, readyErr)
	switch {
	case !out.Reachable:
	case identified:
		out.readLease(lease, leaseErr, time.Now())
	default:
		out.LeaseErr = problem
	}
	return out, nil
}

// judgeReply takes over what /readyz answered, or why it did not.
func (s *Server) judgeReply(r reply, err error) {
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
	if err != nil {
		tlsError, other := whyNoAnswer(err)
		s.LeaseErr = tlsError + other
		return
	}
	if r.status != http.StatusOK {
		s.LeaseErr = fmt.Sprintf("%d %s", r.status, http.StatusText(r.status))
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

func serverClient(all files, c cluster) (*http.Client, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName, InsecureSkipVerify: c.SkipVerify} // as the kubelet does
	authority, err := either(all, c.AuthorityData, c.Authority)
	if err != nil {
		return nil, err
	}
	if len(authority) > 0 {
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(authority) {
			return nil, errors.New("the kubeconfig's certificate authority holds no certificate")
		}
	}
	proxy, err := url.Parse(c.Proxy)
	if err != nil {
		return nil, errors.New("the kubeconfig's proxy-url is no URL")
	}
	client := newClient(conf)
	if c.Proxy != "" {
		client.Transport.(*http.Transport).Proxy = http.ProxyURL(proxy)
	}
	return client, nil
}

// credential adds the node's certificate to the handshake, or returns its token; else the problem says why there is neither.
func credential(all files, u user, conf *tls.Config) (token string, ok bool, problem string) {
	switch {
	case len(u.CertificateData) > 0 || u.Certificate != "":
		pair, err := clientPair(all, u)
		if err != nil {
			return "", false, err.Error()
		}
		conf.Certificates = []tls.Certificate{pair}
		return "", true, ""
	case u.TokenFile != "":
		data, err := all.read(u.TokenFile)
		if err != nil {
			return "", false, oneLine(u.TokenFile) + " " + reasonOf(err)
		}
		return strings.TrimSpace(string(data)), true, ""
	case u.Token != "":
		return u.Token, true, ""
	case u.Exec != nil:
		return "", false, "the kubelet gets its credential from a program, which kdiag does not run"
	}
	return "", false, "the kubeconfig has no credential"
}

// newClient is one that goes where it is told: no proxy, no redirect, and no connection left behind.
func newClient(conf *tls.Config) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: conf, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A reply is the answer to one request, its body bounded.
type reply struct {
	status int
	header http.Header
	body   []byte
	start  time.Time
	took   time.Duration
}

func fetch(ctx context.Context, client *http.Client, address, token string, timeout time.Duration, limit int64) (reply, error) {
	r := reply{start: time.Now()}
	err := stream(ctx, client, address, token, timeout, func(status int, header http.Header, body io.Reader) (err error) {
		r.status, r.header, r.took = status, header, time.Since(r.start)
		r.body, err = io.ReadAll(io.LimitReader(body, limit))
		return err
	})
	if r.status == 0 {
		r.took = time.Since(r.start)
	}
	return r, err
}

// stream gives the answer to one request to read as it comes. All of it has to be there in time.
func stream(ctx context.Context, client *http.Client, address, token string, timeout time.Duration, read func(int, http.Header, io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return read(resp.StatusCode, resp.Header, resp.Body)
}
