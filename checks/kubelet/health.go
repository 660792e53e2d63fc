package kubelet

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
)

const (
	// answerTimeout is how long the kubelet may take for one answer. All that is asked for comes from its memory.
	answerTimeout = 4 * time.Second
	// leastHang is how long an answer that the end of the command cuts short must have been outstanding to hang.
	leastHang     = time.Second
	maxHealthBody = 2 << 10
	maxBody       = 32 << 20 // bytes; /metrics of a kubelet with 500 pods has some 2 MiB, /pods some 10
)

// otherNetwork is why nothing is asked where 127.0.0.1 is another place.
const otherNetwork = "the kubelet is in another network namespace than kdiag; run kdiag with the host's network"

// AskHealth asks the kubelet for its health: the health port, which sees neither PLEG nor runtime, and the server on
// 10250 with the operator's credential, else with the node's own certificate; where neither is let in, the read-only
// port. A node is mostly not allowed to read itself: then the server answers 403, which Missing holds.
//
// Only addresses of this node are asked, and not from within another network namespace, where 127.0.0.1 is another
// place.
func AskHealth(ctx context.Context, root string, s Settings, given Credentials) (Health, error) {
	if s.PID == 0 {
		return Health{}, errors.New("asking the kubelet: no kubelet runs here")
	}
	if apart(root, s.PID, "net") {
		return Health{}, errors.New("asking the kubelet: " + otherNetwork)
	}
	ping := make(chan *Answer, 1)
	go func() {
		if s.HealthzAddress == "" {
			ping <- nil
			return
		}
		ping <- askPlain(ctx, s.HealthzAddress, "/healthz")
	}()
	h, err := askServer(ctx, root, s, given)
	h.Ping = <-ping
	return h, err
}

func askPlain(ctx context.Context, address, path string) *Answer {
	host, err := onNode(address)
	if err != nil {
		return &Answer{URL: "http://" + address + path, Err: err.Error()}
	}
	c := serverClient{client: newClient(nil), base: "http://" + host, timeout: answerTimeout}
	defer c.client.CloseIdleConnections()
	return c.health(ctx, path)
}

// askServer asks at 10250, and where that does not let us in at the read-only port.
func askServer(ctx context.Context, root string, s Settings, given Credentials) (Health, error) {
	if s.Address == "" {
		return Health{Missing: "the kubelet's server is turned off (enableServer)"}, nil
	}
	c, err := newServerClient(root, s, given)
	if err != nil {
		return Health{Missing: err.Error()}, nil
	}
	return c.askBoth(ctx, s)
}

func (c serverClient) askBoth(ctx context.Context, s Settings) (Health, error) {
	defer c.client.CloseIdleConnections()
	h, err := c.askAll(ctx, &s)
	if err != nil {
		return h, err
	}
	h.checkAccess(c.credential)
	// One process serves all ports: where one hangs, the next one would only cost time.
	host, errHost := onNode(s.ReadOnlyAddress)
	if h.Credential != "" || h.Full.Hung || errHost != nil {
		return h, nil
	}
	readOnly := serverClient{
		client: newClient(nil), base: "http://" + host, credential: "read-only port", timeout: answerTimeout,
	}
	defer readOnly.client.CloseIdleConnections()
	open, err := readOnly.askAll(ctx, nil)
	if err != nil || open.Full.Status == 0 {
		return h, err
	}
	open.Missing = h.Missing
	return open, nil
}

// checkAccess finds out whether the server let us in, and if not, why.
func (h *Health) checkAccess(credential string) {
	if h.Metrics != nil || h.Pods != nil {
		return
	}
	switch full := h.Full; {
	case full.Status == 0:
		h.Missing = "the kubelet's server: " + full.Err
	case !full.Denied || !h.SyncLoop.Denied:
		return
	case credential == "":
		h.Missing = "the kubelet's server wants a token or a certificate, and none was given or found"
	case full.Status == http.StatusInternalServerError:
		h.Missing = fmt.Sprintf("the kubelet could not ask the API server whether the %s lets us in (500)", credential)
	default:
		h.Missing = fmt.Sprintf("the kubelet's server does not let us in with the %s (%d)", credential, full.Status)
	}
	h.Credential, h.Unread = "", nil
}

// newServerClient chooses the credential for 10250. The server's certificate is not verified: the kubelet mostly
// signs it itself, and the address is one of this node, of which we are root.
func newServerClient(root string, s Settings, given Credentials) (serverClient, error) {
	host, err := onNode(s.Address)
	if err != nil {
		return serverClient{}, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
	c := serverClient{client: newClient(conf), base: "https://" + host, token: given.Token, timeout: answerTimeout}
	switch {
	case given.Token != "":
		c.credential = "token"
	case given.CertFile != "":
		pair, err := givenPair(given)
		if err != nil {
			return serverClient{}, err
		}
		conf.Certificates = []tls.Certificate{pair}
		c.credential = "certificate"
	default:
		all := seenBy(root, s.PID)
		own := filepath.Join(s.CertDir, clientFile)
		u := user{Certificate: own, Key: own}
		if s.Kubeconfig != "" {
			_, named, err := readKubeconfig(all, s.Kubeconfig)
			if err == nil && (named.Certificate != "" || len(named.CertificateData) > 0) {
				u = current(all, &s, named)
			}
		}
		if pair, err := clientPair(all, u); err == nil {
			conf.Certificates = []tls.Certificate{pair}
			c.credential = "node certificate"
		}
	}
	return c, nil
}

// givenPair reads the operator's certificate and key, which may be in one file, as the kubelet has them.
func givenPair(given Credentials) (tls.Certificate, error) {
	key := given.KeyFile
	if key == "" {
		key = given.CertFile
	}
	var pem [2][]byte
	for i, name := range []string{given.CertFile, key} {
		var err error
		if pem[i], err = kubeletconfig.ReadFile(name); err != nil {
			return tls.Certificate{}, fmt.Errorf("%s %s", oneLine(name), reasonOf(err))
		}
	}
	pair, err := tls.X509KeyPair(pem[0], pem[1])
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and its key are no pair", oneLine(given.CertFile))
	}
	return pair, nil
}

// askAll asks everything side by side. Settings are compared when they are given: the read-only port has no /configz.
// The error is that of a fault of kdiag's in reading an answer.
func (c serverClient) askAll(ctx context.Context, s *Settings) (Health, error) {
	h := Health{Credential: c.credential}
	parts := []struct {
		path  string
		parse func(io.Reader) error
		err   error
	}{
		{path: "/metrics", parse: func(body io.Reader) (err error) {
			h.Metrics, err = parseMetrics(body)
			return err
		}},
		{path: "/pods", parse: func(body io.Reader) (err error) {
			h.Pods, err = parsePods(body)
			return err
		}},
		{path: "/configz", parse: func(body io.Reader) (err error) {
			h.Differs, err = compareConfigz(body, s)
			return err
		}},
	}
	if s == nil {
		parts = parts[:2]
	}
	var all errgroup.Group
	// What is asked ends with its own timeout, so nothing is abandoned: deadline.Run is there for a panic in a parser.
	ask := func(do func()) {
		all.Go(func() error {
			_, err := deadline.Run(context.WithoutCancel(ctx), func(context.Context) (struct{}, error) {
				do()
				return struct{}{}, nil
			})
			return err
		})
	}
	ask(func() { h.Full = c.health(ctx, "/healthz") })
	ask(func() { h.SyncLoop = c.health(ctx, "/healthz/syncloop") })
	for i := range parts {
		ask(func() { parts[i].err = c.read(ctx, parts[i].path, parts[i].parse) })
	}
	if err := all.Wait(); err != nil {
		return Health{}, err
	}
	for _, part := range parts {
		if part.err != nil {
			tlsError, other := whyNoAnswer(part.err)
			h.Unread = append(h.Unread, part.path+": "+tlsError+other)
		}
	}
	return h, nil
}

func (c serverClient) health(ctx context.Context, path string) *Answer {
	a := &Answer{URL: c.base + path}
	r, err := c.get(ctx, path, maxHealthBody)
	a.Took, a.Status = r.took, r.status
	// The kubelet asks the API server whether we are let in. Where it could not, it answers 500, which means nothing
	// about the kubelet (InstallAuthFilter in pkg/kubelet/server/server.go).
	couldNotAsk := r.status == http.StatusInternalServerError && bytes.HasPrefix(r.body, []byte("Authorization error"))
	a.Denied = r.status == http.StatusUnauthorized || r.status == http.StatusForbidden || couldNotAsk
	if r.status == http.StatusOK || r.status >= http.StatusInternalServerError {
		a.Body = healthText(r.body)
	}
	if err != nil {
		a.Hung = isTimeout(err) && r.took >= min(c.timeout, leastHang)
		tlsError, other := whyNoAnswer(err)
		a.Err = tlsError + other
	}
	return a
}

// healthText keeps the lines of a health check, such as "[-]syncloop failed: reason withheld".
func healthText(body []byte) string {
	var lines []string
	for line := range strings.Lines(string(body)) {
		if text := oneLine(line); text != "" && len(lines) < 10 {
			lines = append(lines, text)
		}
	}
	return strings.Join(lines, "\n")
}

// parsePods counts the pods of a PodList by phase.
func parsePods(body io.Reader) (*Pods, error) {
	var list struct {
		Items []struct {
			Status struct {
				Phase string `json:"phase"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return nil, fmt.Errorf("reading the kubelet's pods: %w", err)
	}
	pods := &Pods{Total: len(list.Items), ByPhase: map[string]int{}}
	for _, pod := range list.Items {
		switch phase := pod.Status.Phase; phase {
		case "Pending", "Running", "Succeeded", "Failed":
			pods.ByPhase[phase]++
		default:
			pods.ByPhase["Unknown"]++
		}
	}
	return pods, nil
}

// compareConfigz names the settings that /configz, what the kubelet runs with, has otherwise than its files and
// flags. The cgroup driver is not compared: since Kubernetes 1.36 /configz shows that of the runtime, whatever the
// files say (getCgroupDriverFromCRI runs before initConfigz in cmd/kubelet/app/server.go upstream).
func compareConfigz(body io.Reader, s *Settings) ([]Difference, error) {
	var doc struct {
		Config json.RawMessage `json:"kubeletconfig"`
	}
	if err := json.NewDecoder(body).Decode(&doc); err != nil {
		return nil, err
	}
	if len(doc.Config) == 0 {
		return nil, errors.New("no configuration")
	}
	const name = "/configz"
	read := kubeletconfig.Read(map[string][]string{"config": {name}}, kubeletconfig.Files{
		Read: func(string) ([]byte, error) { return doc.Config, nil },
	})
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

// onNode turns an address that the kubelet listens at into one to ask, and refuses what is not this node's.
func onNode(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, errIP := netip.ParseAddr(host)
	switch {
	case err != nil || errIP != nil:
		return "", fmt.Errorf("%s is no address", oneLine(address))
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
	return "", fmt.Errorf("%s is no address of this node", oneLine(address))
}
