package fleet

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver"
)

// latency of answers keeps lists and snapshots of one second apart.
const latency = 10 * time.Millisecond

// A server is an API server of lists, which it gives out in chunks, and of documents. It is reached without a network,
// so also in fake time.
type server struct {
	lists map[string]runtime.Object // by path
	docs  map[string]string         // JSON, by path
	json  bool                      // it lacks protobuf
	clock func() time.Time          // of its Date; nil: it sends none
	watch http.HandlerFunc          // of nodes
	logs  http.HandlerFunc          // of kubelets

	mu    sync.Mutex
	fails func(*http.Request) *metav1.Status // nil, or why a request fails
	asked []string
}

func (s *server) fail(with func(*http.Request) *metav1.Status) {
	s.mu.Lock()
	s.fails = with
	s.mu.Unlock()
}

func (s *server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	time.Sleep(latency)
	s.mu.Lock()
	s.asked = append(s.asked, req.URL.Path+"?"+req.URL.Query().Encode())
	fails := s.fails
	s.mu.Unlock()
	if s.clock != nil {
		w.Header().Set("Date", s.clock().UTC().Format(http.TimeFormat))
	}
	w.Header().Set("Content-Type", "application/json")
	if fails != nil {
		if status := fails(req); status != nil {
			writeStatus(w, status)
			return
		}
	}
	list, doc := s.lists[req.URL.Path], s.docs[req.URL.Path]
	switch {
	case strings.HasSuffix(req.URL.Path, "/proxy/logs/"):
		s.logs(w, req)
	case req.URL.Query().Has("watch"):
		w.WriteHeader(http.StatusOK)
		s.watch(w, req)
	case list != nil:
		s.page(w, req, list)
	case doc != "" && strings.HasPrefix(req.Header.Get("Accept"), "application/json"):
		_, _ = io.WriteString(w, doc)
	default:
		writeStatus(w, &metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound, Message: "not found"})
	}
}

func writeStatus(w http.ResponseWriter, status *metav1.Status) {
	status.TypeMeta, status.Status = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, metav1.StatusFailure
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

// page writes the part of a list that limit and continue mean.
func (s *server) page(w http.ResponseWriter, req *http.Request, list runtime.Object) {
	codecs := serializer.NewCodecFactory(apiserver.Scheme())
	media := runtime.ContentTypeJSON
	if accept := req.Header.Get("Accept"); !s.json && strings.HasPrefix(accept, runtime.ContentTypeProtobuf) {
		media = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
	gv := v1.SchemeGroupVersion
	if group, ok := strings.CutPrefix(req.URL.Path, "/apis/"); ok {
		gv = schema.GroupVersion{Group: strings.Split(group, "/")[0], Version: "v1"}
	}
	list = list.DeepCopyObject()
	items, _ := meta.ExtractList(list)
	from, _ := strconv.Atoi(req.URL.Query().Get("continue"))
	limit, _ := strconv.Atoi(req.URL.Query().Get("limit"))
	to := min(len(items), from+limit)
	_ = meta.SetList(list, items[from:to])
	access, _ := meta.ListAccessor(list)
	if access.SetResourceVersion("7"); to < len(items) {
		access.SetContinue(strconv.Itoa(to))
	}
	w.Header().Set("Content-Type", media)
	_ = codecs.EncoderForVersion(info.Serializer, gv).Encode(list, w)
}

// RoundTrip serves a request. Its body ends with the context.
func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	body, out := io.Pipe()
	a := &answer{PipeWriter: out, header: http.Header{}, ready: make(chan int, 1)}
	go func() {
		s.ServeHTTP(a, req)
		a.WriteHeader(http.StatusOK)
		_ = out.Close()
	}()
	go func() {
		<-req.Context().Done()
		_ = out.CloseWithError(req.Context().Err())
	}()
	select {
	case code := <-a.ready:
		return &http.Response{StatusCode: code, Header: a.header, Body: body, Request: req}, nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// An answer is a http.ResponseWriter.
type answer struct {
	*io.PipeWriter
	header http.Header
	once   sync.Once
	ready  chan int
}

func (a *answer) Header() http.Header  { return a.header }
func (a *answer) WriteHeader(code int) { a.once.Do(func() { a.ready <- code }) }
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.PipeWriter.Write(b)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, s http.RoundTripper) *Cluster {
	t.Helper()
	c, err := Connect(&rest.Config{Host: "http://server", BearerToken: "secret", Transport: s})
	must(t, err)
	return c
}

func forbids(resources ...string) func(*http.Request) *metav1.Status {
	return func(req *http.Request) *metav1.Status {
		for _, r := range resources {
			if strings.HasSuffix(req.URL.Path, "/"+r) {
				return &metav1.Status{
					Code: 403, Reason: metav1.StatusReasonForbidden, Message: r + ` is forbidden: User "eve" cannot list it`,
				}
			}
		}
		return nil
	}
}
