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
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/kdiag/kdiag/checks/together"
)

const (
	// answerTimeout is how long the kubelet may take for one answer. All that is asked for comes from its memory.
	answerTimeout = 4 * time.Second
	// leastHang is how long an answer that the end of the command cuts short must have been outstanding to hang.
	leastHang     = time.Second
	maxHealthBody = 2 << 10
	maxBody       = 32 << 20 // /metrics of a kubelet with 500 pods has some 2 MiB, /pods some 10
)

// AskHealth asks the kubelet how it is: the health port, which sees neither PLEG nor runtime, and the server on 10250 with
// the operator's credential, else with the node's own certificate; where neither is let in, the read-only port. A node is
// mostly not allowed to read itself: then the server says 403, and Missing says so.
//
// Only addresses of this node are asked, and not from within another network namespace, where 127.0.0.1 is another place.
func AskHealth(ctx context.Context, root string, s Settings, given Credentials) (Health, error) {
	if s.PID == 0 {
		return Health{}, errors.New("asking the kubelet: no kubelet runs here")
	}
	if elsewhere(root, s.PID) {
		return Health{}, errors.New("asking the kubelet: it is in another network namespace than kdiag; run kdiag with the host's network")
	}
	var h Health
	var wg together.Group
	if s.HealthzAddress != "" {
		wg.Go(func() { h.Ping = askPlain(ctx, s.HealthzAddress, "/healthz") })
	}
	var full Health
	wg.Go(func() { full = askServer(ctx, root, s, given) })
	wg.Wait()
	full.Ping = h.Ping
	return full, nil
}

// elsewhere reports whether a process is known to be in another network namespace than ours.
func elsewhere(root string, pid int) bool { return apart(root, pid, "net") }

// apart reports whether a process is known to be in another namespace of a kind than ours.
func apart(root string, pid int, kind string) bool {
	ours, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		return false
	}
	theirs, err := os.Readlink(filepath.Join(root, "proc", strconv.Itoa(pid), "ns", kind))
	return err == nil && ours != theirs
}

func askPlain(ctx context.Context, address, path string) *Answer {
	host, err := onNode(address)
	if err != nil {
		return &Answer{URL: "http://" + address + path, Err: err.Error()}
	}
	client := newClient(nil)
	defer client.CloseIdleConnections()
	return door{client: client, base: "http://" + host, timeout: answerTimeout}.health(ctx, path)
}

// askServer asks at 10250, and where that does not let us in at the read-only port.
func askServer(ctx context.Context, root string, s Settings, given Credentials) Health {
	if s.Address == "" {
		return Health{Missing: "the kubelet's server is turned off (enableServer)"}
	}
	d, err := openDoor(root, s, given)
	if err != nil {
		return Health{Missing: err.Error()}
	}
	return askBoth(ctx, d, s)
}

func askBoth(ctx context.Context, d door, s Settings) Health {
	defer d.client.CloseIdleConnections()
	h := Health{Credential: d.credential}
	d.askAll(ctx, &h, &s)
	h.judgeEntry(d.credential)
	// One process serves all ports: where one hangs, the next one would only cost time.
	if h.Credential != "" || h.Full.Hung || s.ReadOnlyAddress == "" {
		return h
	}
	host, err := onNode(s.ReadOnlyAddress)
	if err != nil {
		return h
	}
	readOnly := door{client: newClient(nil), base: "http://" + host, credential: "read-only port", limit: maxBody, timeout: answerTimeout}
	defer readOnly.client.CloseIdleConnections()
	open := Health{Credential: readOnly.credential}
	readOnly.askAll(ctx, &open, nil)
	if open.Full.Status == 0 {
		return h
	}
	open.Missing = h.Missing
	return open
}

// judgeEntry says whether the server let us in, and if not, why.
func (h *Health) judgeEntry(credential string) {
	switch {
	case h.Full.Denied && h.SyncLoop.Denied && h.Metrics == nil && h.Pods == nil:
		h.Credential, h.Unread = "", nil
		switch {
		case credential == "":
			h.Missing = "the kubelet's server wants a token or a certificate, and none was given or found"
		case h.Full.Status == http.StatusInternalServerError:
			h.Missing = fmt.Sprintf("the kubelet could not ask the API server whether the %s lets us in (500)", credential)
		default:
			h.Missing = fmt.Sprintf("the kubelet's server does not let us in with the %s (%d)", credential, h.Full.Status)
		}
	case h.Full.Status == 0 && h.Metrics == nil && h.Pods == nil:
		h.Credential, h.Unread = "", nil
		h.Missing = "the kubelet's server: " + h.Full.Err
	}
}

// A door is one way into the kubelet's server.
type door struct {
	client     *http.Client
	base       string
	token      string
	credential string // what opens it, in words
	limit      int64  // bytes of a body
	timeout    time.Duration
}

// openDoor chooses the credential for 10250. The server's certificate is not verified: the kubelet mostly signs it itself,
// and the address is one of this node, of which we are root.
func openDoor(root string, s Settings, given Credentials) (door, error) {
	host, err := onNode(s.Address)
	if err != nil {
		return door{}, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
	d := door{base: "https://" + host, token: given.Token, limit: maxBody, timeout: answerTimeout}
	switch {
	case given.Token != "":
		d.credential = "token"
	case given.CertFile != "":
		pair, err := givenPair(given)
		if err != nil {
			return door{}, err
		}
		conf.Certificates = []tls.Certificate{pair}
		d.credential = "certificate"
	default:
		all := seenBy(root, s.PID)
		own := filepath.Join(s.CertDir, clientFile)
		u := user{Certificate: own, Key: own}
		if s.Kubeconfig != "" {
			if _, named, err := readKubeconfig(all, s.Kubeconfig); err == nil && (named.Certificate != "" || len(named.CertificateData) > 0) {
				u = knownBy(all, &s, named)
			}
		}
		if pair, err := clientPair(all, u); err == nil {
			conf.Certificates = []tls.Certificate{pair}
			d.credential = "node certificate"
		}
	}
	d.client = newClient(conf)
	return d, nil
}

func givenPair(given Credentials) (tls.Certificate, error) {
	certificate, err := readRegular(given.CertFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s %s", oneLine(given.CertFile), reasonOf(err))
	}
	key := certificate // in one file, as the kubelet has them
	if given.KeyFile != "" {
		if key, err = readRegular(given.KeyFile); err != nil {
			return tls.Certificate{}, fmt.Errorf("%s %s", oneLine(given.KeyFile), reasonOf(err))
		}
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and its key are no pair", oneLine(given.CertFile))
	}
	return pair, nil
}

// askAll asks everything side by side. Settings are compared when they are given.
func (d door) askAll(ctx context.Context, h *Health, s *Settings) {
	var wg together.Group
	wg.Go(func() { h.Full = d.health(ctx, "/healthz") })
	wg.Go(func() { h.SyncLoop = d.health(ctx, "/healthz/syncloop") })
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
		parts = parts[:2] // the read-only port has no /configz
	}
	for i := range parts {
		wg.Go(func() { parts[i].err = d.read(ctx, parts[i].path, parts[i].parse) })
	}
	wg.Wait()
	for _, part := range parts {
		if part.err != nil {
			tlsError, other := whyNoAnswer(part.err)
			h.Unread = append(h.Unread, part.path+": "+tlsError+other)
		}
	}
}

func (d door) health(ctx context.Context, path string) *Answer {
	a := &Answer{URL: d.base + path}
	r, err := fetch(ctx, d.client, d.base+path, d.token, d.timeout, maxHealthBody)
	a.Took, a.Status = r.took, r.status
	a.Denied = r.status == http.StatusUnauthorized || r.status == http.StatusForbidden || couldNotAsk(r)
	if r.status == http.StatusOK || r.status >= http.StatusInternalServerError {
		a.Body = healthText(r.body)
	}
	if err != nil {
		a.Hung = isTimeout(err) && r.took >= min(d.timeout, leastHang)
		tlsError, other := whyNoAnswer(err)
		a.Err = tlsError + other
	}
	return a
}

// couldNotAsk reports whether the kubelet says that it could not ask the API server whether we are let in: with a 500, which says nothing of
// the kubelet (InstallAuthFilter in pkg/kubelet/server/server.go).
func couldNotAsk(r reply) bool {
	return r.status == http.StatusInternalServerError && bytes.HasPrefix(r.body, []byte("Authorization error"))
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

// read reads the body of a 200, up to a bound.
func (d door) read(ctx context.Context, path string, parse func(io.Reader) error) error {
	return stream(ctx, d.client, d.base+path, d.token, d.timeout, func(status int, _ http.Header, body io.Reader) error {
		if status != http.StatusOK {
			return fmt.Errorf("%d %s", status, http.StatusText(status))
		}
		return parse(http.MaxBytesReader(nil, io.NopCloser(body), d.limit))
	})
}

// compareConfigz names the settings that /configz, what the kubelet runs with, has otherwise than its files and flags. The cgroup driver is
// not compared: since Kubernetes 1.36 /configz shows that of the runtime, whatever the files say (getCgroupDriverFromCRI runs before
// initConfigz in cmd/kubelet/app/server.go upstream).
func compareConfigz(body io.Reader, s *Settings) ([]Setting, error) {
	var doc struct {
		Config *kubeletconfigv1beta1.KubeletConfiguration `json:"kubeletconfig"`
	}
	if err := json.NewDecoder(body).Decode(&doc); err != nil {
		return nil, err
	}
	if doc.Config == nil {
		return nil, errors.New("no configuration")
	}
	var live Settings
	if err := live.fill(doc.Config); err != nil {
		return nil, err
	}
	var out []Setting
	add := func(name string, runs, says any) {
		if runs != says {
			out = append(out, Setting{Name: name, Value: oneLine(fmt.Sprint(runs)), Harm: oneLine(fmt.Sprint(says))})
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
	if err != nil {
		return "", fmt.Errorf("%s is no address", oneLine(address))
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil:
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
