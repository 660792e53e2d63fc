// Package fleet reads the nodes of a cluster through its API server, and groups the sick ones by cause.
package fleet

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver"
)

// A Snapshot is what the API server has of the nodes at one time.
type Snapshot struct {
	// At is when the leases had been read, or all else where they could not, by the server's clock. It is that of the
	// Date of its answers, so up to a second too early.
	At    time.Time
	Nodes []Node // by name
	Pods  bool   // whether pods were read
	Cost  checks.FleetRequests
	// Problems are what could not be read, each with the reason. Nodes could, or there is no Snapshot.
	Problems []string

	reading *reading // that it is of, which Watch goes on with
}

// A Node holds the parts of a Node object, its lease, its events and its pods that fleet uses.
type Node struct {
	Name          string
	Created       time.Time
	Labels        map[string]string
	Unschedulable bool
	Addresses     []v1.NodeAddress
	Owner         string // Kind/name of its first owner
	Info          v1.NodeSystemInfo
	Conditions    []v1.NodeCondition
	Renewed       time.Time // of its lease; zero where there is none
	Events        []checks.FleetNodeEvent
	Pods          int              // with Options.Pods
	DaemonSets    []string         // namespace/name of those with a pod on it, with Options.Pods
	Log           *checks.FleetLog // after ReadLogs
}

// Condition returns a condition of the node; an empty one where it has none of that type.
func (n *Node) Condition(kind v1.NodeConditionType) v1.NodeCondition {
	for _, c := range n.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.NodeCondition{}
}

// A Cluster is a way to the API server of a cluster. It is safe for use by several goroutines.
type Cluster struct {
	core   rest.Interface // /api/v1; its AbsPath reaches all else
	params runtime.ParameterCodec
	meter  *meter
}

// Connect returns a Cluster, which has asked nothing yet. The error is of the configuration.
func Connect(cfg *rest.Config) (*Cluster, error) {
	scheme := apiserver.Scheme()
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.WarningHandler = "kdiag", rest.NoWarnings{}
	m := &meter{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		m.next = next
		return m
	})
	cfg.QPS = -1 // a few requests, and the server has its own limits
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.ContentType = runtime.ContentTypeJSON
	transport, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", cfg.Host, err)
	}
	transport.CheckRedirect = func(to *http.Request, via []*http.Request) error {
		if to.URL.Host != via[0].URL.Host || to.URL.Scheme != via[0].URL.Scheme {
			return errors.New("redirected elsewhere") // by a pod behind the proxy: the credentials would go there
		}
		return nil
	}
	cfg.APIPath, cfg.GroupVersion = "/api", &v1.SchemeGroupVersion
	core, err := rest.RESTClientForConfigAndClient(cfg, transport)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", cfg.Host, err)
	}
	return &Cluster{core, runtime.NewParameterCodec(scheme), m}, nil
}

// A meter is a transport that counts what its requests cost, and compares the clocks. It is safe for use by several
// goroutines.
type meter struct {
	next            http.RoundTripper
	requests, bytes atomic.Int64 // bytes of the answers, after decompression
	ahead           atomic.Int64 // nanoseconds by which the server's clock is before ours; 0 while that is not known
}

// now returns the time by the server's clock, up to a second too early: Date has whole seconds.
func (m *meter) now() time.Time { return time.Now().Add(time.Duration(m.ahead.Load())).UTC() }

// cost returns what all requests until now cost, which took so many seconds.
func (m *meter) cost(seconds float64) checks.FleetRequests {
	return checks.FleetRequests{Requests: int(m.requests.Load()), Bytes: m.bytes.Load(), Seconds: seconds}
}

// RoundTrip does a request.
func (m *meter) RoundTrip(req *http.Request) (*http.Response, error) {
	m.requests.Add(1)
	resp, err := m.next.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err == nil && !strings.Contains(req.URL.Path, "/proxy/") { // of a kubelet's or a pod's clock
		m.ahead.Store(int64(time.Until(date)))
	}
	resp.Body = counted{resp.Body, &m.bytes}
	return resp, nil
}

type counted struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.bytes.Add(int64(n))
	return n, err
}
