package fleet

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver"
)

// latency of answers keeps lists and snapshots of one second apart.
const latency = 10 * time.Millisecond

// A server is an API server of lists, which it gives out in chunks, and of documents.
type server struct {
	lists map[string]runtime.Object // by path
	docs  map[string]string         // JSON, by path
	clock func() time.Time          // of its Date; nil: as the client's
	watch http.HandlerFunc          // of nodes
	proxy http.HandlerFunc          // what is behind each kubelet and pod
	other http.HandlerFunc          // nil, or answers for all else, at once

	mu    sync.Mutex
	fails func(*http.Request) *metav1.Status // nil, or why a request fails
	asked []string
}

func (s *server) fail(with func(*http.Request) *metav1.Status) {
	s.mu.Lock()
	s.fails = with
	s.mu.Unlock()
}

// requests returns the paths and queries that were asked for.
func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	list, doc := s.lists[req.URL.Path], s.docs[req.URL.Path]
	other := list == nil && doc == "" && s.other != nil
	if !other {
		time.Sleep(latency)
	}
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
	switch {
	case strings.Contains(req.URL.Path, "/proxy/"):
		s.proxy(w, req)
	case req.URL.Query().Has("watch"):
		_ = http.NewResponseController(w).Flush()
		s.watch(w, req)
	case list != nil:
		s.page(w, req, list)
	case doc != "":
		_, _ = io.WriteString(w, doc)
	case other:
		s.other(w, req)
	default:
		writeStatus(w, &metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound, Message: "not found"})
	}
}

func writeStatus(w http.ResponseWriter, status *metav1.Status) {
	status.TypeMeta, status.Status = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, metav1.StatusFailure
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

// refuses answers with an error.
func refuses(err *apierrors.StatusError) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { writeStatus(w, err.ErrStatus.DeepCopy()) }
}

// page writes the part of a list that limit and continue mean.
func (s *server) page(w http.ResponseWriter, req *http.Request, list runtime.Object) {
	codecs := serializer.NewCodecFactory(apiserver.Scheme())
	const media = runtime.ContentTypeProtobuf
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

var must, equal = testkit.Must, testkit.Equal

// connect serves in memory, so also in fake time, until the test ends.
func connect(t *testing.T, s *server) *Cluster {
	t.Helper()
	c, err := Connect(&rest.Config{Host: "http://server", BearerToken: "secret", Dial: faketest.ServeHTTP(t, s)})
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
