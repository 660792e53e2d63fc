package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	s.healthz(mux)
	for path, g := range map[string]prometheus.Gatherer{
		"/metrics": s.cfg.Metrics, "/metrics/probes": s.cfg.Probes, "/metrics/resource": s.cfg.Resource,
	} {
		if g != nil {
			// What was gathered is served even if a part could not be: the scrape error is one of the metrics.
			mux.Handle("GET "+path, promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
		}
	}
	if s.cfg.Pods != nil {
		mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, podList(s.cfg.Pods())) })
	}
	if s.cfg.Summary != nil {
		mux.HandleFunc("GET /stats/summary", s.summary)
	}
	if s.cfg.NoDebugging {
		return mux
	}
	if s.cfg.RunningPods != nil {
		mux.HandleFunc("GET /runningpods/", s.runningPods)
	}
	if s.cfg.Configz != nil {
		mux.HandleFunc("GET /configz", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Control", "no-cache, private")
			writeJSON(w, map[string]any{"kubeletconfig": s.cfg.Configz})
		})
	}
	if s.cfg.NoProfiling {
		return mux
	}
	if s.cfg.SetVerbosity != nil {
		mux.HandleFunc("PUT /debug/flags/v", s.setVerbosity)
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func podList(pods []*v1.Pod) *v1.PodList {
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: make([]v1.Pod, 0, len(pods))}
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	return list
}

func (s *Server) runningPods(w http.ResponseWriter, r *http.Request) {
	running, err := s.cfg.RunningPods(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	pods := make([]*v1.Pod, 0, len(running))
	for _, p := range running {
		pods = append(pods, apiPod(p))
	}
	writeJSON(w, podList(pods))
}

// apiPod is as much of a pod as the runtime knows.
func apiPod(p *container.Pod) *v1.Pod {
	out := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: p.UID, Name: p.Name, Namespace: p.Namespace}}
	for _, c := range p.Containers {
		out.Spec.Containers = append(out.Spec.Containers, v1.Container{Name: c.Name, Image: c.Image})
	}
	return out
}

func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	summary, err := s.cfg.Summary(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if r.URL.Query().Get("only_cpu_and_memory") == "true" {
		summary = cpuAndMemory(summary)
	}
	writeJSON(w, summary)
}

// cpuAndMemory is a copy of the summary without all else.
func cpuAndMemory(s *statsapi.Summary) *statsapi.Summary {
	n := s.Node
	out := &statsapi.Summary{Pods: make([]statsapi.PodStats, 0, len(s.Pods)), Node: statsapi.NodeStats{
		NodeName: n.NodeName, StartTime: n.StartTime, CPU: n.CPU, Memory: n.Memory, Swap: n.Swap, SystemContainers: n.SystemContainers,
	}}
	for _, p := range s.Pods {
		pod := statsapi.PodStats{PodRef: p.PodRef, StartTime: p.StartTime, CPU: p.CPU, Memory: p.Memory, Swap: p.Swap}
		for _, c := range p.Containers {
			pod.Containers = append(pod.Containers, statsapi.ContainerStats{
				Name: c.Name, StartTime: c.StartTime, CPU: c.CPU, Memory: c.Memory, Swap: c.Swap,
			})
		}
		out.Pods = append(out.Pods, pod)
	}
	return out
}

// mostVerbosity bounds the body of a PUT to /debug/flags/v, in bytes.
const mostVerbosity = 64

func (s *Server) setVerbosity(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostVerbosity))
	if err == nil {
		err = s.cfg.SetVerbosity(string(body))
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("setting the verbosity: %v", err), http.StatusBadRequest)
		return
	}
	_, _ = fmt.Fprintf(w, "successfully set klog.logging.verbosity to %s", body) // the reader may be gone
}
