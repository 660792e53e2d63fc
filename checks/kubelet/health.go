package kubelet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
)

// AskHealth asks the kubelet for its health: the health port, which sees neither PLEG nor runtime, and the server on
// 10250 with the operator's credential, else with the node's own certificate; where neither is let in, the read-only
// port. A node is mostly not allowed to read itself: then the server answers 403, which Missing holds.
//
// Only addresses of this node are asked, and not from within another network namespace, where 127.0.0.1 is another
// place.
func AskHealth(ctx context.Context, root string, s Settings, given Credentials) (Health, error) {
	if err := reachable(root, s); err != nil {
		return Health{}, fmt.Errorf("asking the kubelet: %w", err)
	}
	ping := make(chan *Answer, 1)
	held := holders(ctx, root, s)
	go func() { ping <- askPing(ctx, s, held) }()
	h := Health{}
	c, err := newServerClient(root, s, given, held)
	if err != nil {
		h.Missing = err.Error()
	} else {
		h = c.askEither(ctx, s)
	}
	h.Ping, h.Holders = <-ping, held
	return h, nil
}

// askPing asks the health port; nil where it is turned off. A stranger's answer is not the kubelet's.
func askPing(ctx context.Context, s Settings, held []Holder) *Answer {
	if s.HealthzAddress == "" {
		return nil
	}
	a := &Answer{URL: "http://" + s.HealthzAddress + "/healthz"}
	host, err := onNode(s.HealthzAddress)
	if err != nil {
		a.Err = err.Error()
	} else if stranger := holderOf(held, s.HealthzAddress); stranger != nil {
		a.Err = stranger.String()
	} else {
		c := newClient("http://"+host, nil)
		defer c.client.CloseIdleConnections()
		if a = c.health(ctx, "/healthz"); a.Status == 0 && loopbackDown(host) {
			a.Hung, a.LoopbackDown, a.Err = false, true, "the network interface lo is down"
		}
	}
	return a
}

// loopbackDown reports whether an address is the loopback's and its interface is down. A connection to it is refused as
// unreachable then, or, by the default route, goes astray and times out.
func loopbackDown(address string) bool {
	host, err := netip.ParseAddrPort(address)
	lo, errLo := net.InterfaceByName("lo")
	return err == nil && errLo == nil && host.Addr().IsLoopback() && lo.Flags&net.FlagUp == 0
}

// askEither asks at 10250, and where that does not let us in at the read-only port.
func (c serverClient) askEither(ctx context.Context, s Settings) Health {
	defer c.client.CloseIdleConnections()
	h := c.askAll(ctx, &s)
	switch loop := h.SyncLoop; {
	case h.Metrics != nil || loop.Status != 0 && !loop.Denied:
		return h
	case loop.Status == 0:
		h.Missing = "the kubelet's server: " + loop.Err
	case c.credential == "":
		h.Missing = "the kubelet's server needs a token or a certificate, and none was given or found"
	case loop.Status == http.StatusInternalServerError:
		h.Missing = fmt.Sprintf("the kubelet could not ask the API server whether to accept the %s (500)", c.credential)
	default:
		h.Missing = fmt.Sprintf("the kubelet's server refuses the %s (%d)", c.credential, loop.Status)
	}
	h.Credential, h.Unread = "", nil
	// One process serves all ports: where one hangs, the next one would only cost time.
	host, err := onNode(s.ReadOnlyAddress)
	if h.SyncLoop.Hung || err != nil {
		return h
	}
	readOnly := newClient("http://"+host, nil)
	defer readOnly.client.CloseIdleConnections()
	readOnly.credential = "read-only port"
	if open := readOnly.askAll(ctx, nil); open.SyncLoop.Status != 0 {
		open.Missing = h.Missing
		return open
	}
	return h
}

// reachable returns why no port of the kubelet can be asked; nil where one can.
func reachable(root string, s Settings) error {
	if s.PID == 0 {
		return errors.New("no kubelet runs here")
	}
	if otherNetwork(root, s.PID) {
		return errOtherNetwork
	}
	return nil
}

// openServer returns a client for 10250 where that can be asked.
func openServer(ctx context.Context, root string, s Settings, given Credentials) (serverClient, error) {
	if err := reachable(root, s); err != nil {
		return serverClient{}, err
	}
	return newServerClient(root, s, given, holders(ctx, root, s))
}

// newServerClient chooses the credential for 10250. The server's certificate is not verified: the kubelet mostly
// signs it itself, and the address is one of this node, of which we are root.
func newServerClient(root string, s Settings, given Credentials, held []Holder) (serverClient, error) {
	if s.Address == "" {
		return serverClient{}, errors.New("the kubelet's server is turned off (enableServer)")
	}
	if stranger := holderOf(held, s.Address); stranger != nil { // a token is not for everybody
		return serverClient{}, errors.New(stranger.String())
	}
	host, err := onNode(s.Address)
	if err != nil {
		return serverClient{}, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
	c := newClient("https://"+host, conf)
	c.token, c.given = given.Token, given.Token != "" || given.CertFile != ""
	all := crictl.SeenBy(root, s.PID)
	own := filepath.Join(s.CertDir, clientFile)
	u := &api.AuthInfo{ClientCertificate: own, ClientKey: own}
	switch {
	case given.Token != "":
		c.credential = "token"
		return c, nil
	case given.CertFile != "": // as the operator sees it; both may be in one file, as the kubelet has them
		c.credential = "certificate"
		certificate, _ := filepath.Abs(given.CertFile)
		key, _ := filepath.Abs(cmp.Or(given.KeyFile, given.CertFile))
		all, u = crictl.SeenBy("/", 0), &api.AuthInfo{ClientCertificate: certificate, ClientKey: key}
	case s.Kubeconfig != "":
		_, named, err := readKubeconfig(all, s.Kubeconfig)
		if err == nil && (named.ClientCertificate != "" || len(named.ClientCertificateData) > 0) {
			u = current(all, &s, named)
		}
	}
	pair, err := clientPair(all, u)
	switch {
	case err == nil:
		conf.Certificates = []tls.Certificate{pair}
		c.credential = cmp.Or(c.credential, "node certificate")
	case c.credential != "":
		return serverClient{}, err
	}
	return c, nil
}

// askAll asks everything side by side. The kubelet logs each request that it refuses, so with a credential that nobody
// gave for this, one request must be let in before there is another. Settings are compared when they are given: the
// read-only port has no /configz.
func (c serverClient) askAll(ctx context.Context, s *Settings) Health {
	h := Health{Credential: c.credential}
	var errMetrics, errConfigz error
	var all sync.WaitGroup
	answered := make(chan struct{})
	all.Go(func() {
		defer close(answered)
		h.SyncLoop = c.health(ctx, "/healthz/syncloop")
	})
	if !c.given {
		select {
		case <-answered:
			if h.SyncLoop.Denied || h.SyncLoop.Status == 0 {
				return h
			}
		case <-time.After(leastHang): // it may be the loop alone that hangs
		}
	}
	all.Go(func() {
		var r reply
		if r, errMetrics = c.getOK(ctx, "/metrics"); errMetrics == nil {
			h.Metrics, errMetrics = parseMetrics(r.body)
		}
	})
	if s != nil {
		all.Go(func() {
			var r reply
			if r, errConfigz = c.getOK(ctx, "/configz"); errConfigz == nil {
				h.Differs, errConfigz = compareConfigz(r.body, s)
			}
		})
	}
	all.Wait()
	if errMetrics != nil {
		h.Unread = append(h.Unread, "/metrics: "+reasonUnanswered(errMetrics))
	}
	if errConfigz != nil {
		h.Unread = append(h.Unread, "/configz: "+reasonUnanswered(errConfigz))
	}
	return h
}

// Failed reports whether the kubelet itself says that this check of it fails.
func (a *Answer) Failed() bool {
	return a != nil && !a.Denied && a.Status >= http.StatusInternalServerError
}

func (c serverClient) health(ctx context.Context, path string) *Answer {
	r, err := c.get(ctx, path)
	a := &Answer{URL: c.base + path, Took: r.took, Status: r.status}
	// The kubelet asks the API server whether we are let in. Where it could not, it answers 500, which means nothing
	// about the kubelet (InstallAuthFilter in pkg/kubelet/server/server.go).
	couldNotAsk := r.status == http.StatusInternalServerError && bytes.HasPrefix(r.body, []byte("Authorization error"))
	a.Denied = r.status == http.StatusUnauthorized || r.status == http.StatusForbidden || couldNotAsk
	if err != nil {
		a.Hung = isTimeout(err) && r.took >= min(c.timeout, leastHang)
		a.NotAccepted = a.Hung && !r.accepted
		a.Err = reasonUnanswered(err)
	}
	return a
}

// compareConfigz names the settings in use, as /configz shows them, that differ from the kubelet's files and flags. The
// cgroup driver is not compared: since Kubernetes 1.36 /configz shows the runtime's, whatever the files say
// (getCgroupDriverFromCRI runs before initConfigz in cmd/kubelet/app/server.go upstream).
func compareConfigz(body []byte, s *Settings) ([]Difference, error) {
	config, err := configOf(body)
	if err != nil {
		return nil, err
	}
	read := kubeletconfig.Read(map[string][]string{"config": {"/configz"}}, kubeletconfig.Files{
		Read: func(string) ([]byte, error) { return config, nil },
	}, true)
	if len(read.Files) == 0 {
		return nil, errors.New(oneLine(read.Problems[0].Error()))
	}
	var live Settings
	live.fill(&read.Config)
	var out []Difference
	add := func(name string, running, configured any) {
		if running != configured {
			out = append(out, Difference{name, oneLine(fmt.Sprint(running)), oneLine(fmt.Sprint(configured))})
		}
	}
	add("containerRuntimeEndpoint", live.Endpoint, s.Endpoint)
	add("featureGates.EventedPLEG", live.EventedPLEG, s.EventedPLEG)
	add("maxPods", live.MaxPods, s.MaxPods)
	add("nodeStatusUpdateFrequency", live.NodeStatusEvery, s.NodeStatusEvery)
	add("podPidsLimit", live.PodPidsLimit, s.PodPidsLimit)
	add("runtimeRequestTimeout", live.RequestTimeout, s.RequestTimeout)
	add("serializeImagePulls", live.SerializePulls, s.SerializePulls)
	add("syncFrequency", live.SyncFrequency, s.SyncFrequency)
	return out, nil
}

// onNode turns an address that the kubelet listens at into one to ask, and refuses addresses of other nodes.
func onNode(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, errIP := netip.ParseAddr(host)
	switch {
	case err != nil || errIP != nil:
		return "", fmt.Errorf("%s is not a valid address", oneLine(address))
	case ip == netip.IPv6Unspecified():
		return net.JoinHostPort("::1", port), nil
	case ip.IsUnspecified():
		return net.JoinHostPort("127.0.0.1", port), nil
	case ip.IsLoopback():
		return net.JoinHostPort(ip.String(), port), nil
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("listing this node's addresses: %w", err)
	}
	for _, a := range own {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr() == ip {
			return net.JoinHostPort(host, port), nil
		}
	}
	return "", fmt.Errorf("%s is not an address of this node", oneLine(address))
}
