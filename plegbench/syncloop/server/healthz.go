package server

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// healthz serves all checks at /healthz and each at /healthz/NAME (k8s.io/apiserver/pkg/server/healthz upstream). ping says
// that the process runs. log says that the log is flushed, which here is always so: its lines are not buffered.
func (s *Server) healthz(mux *http.ServeMux) {
	well := func() error { return nil }
	checks := append([]Check{{"ping", well}, {"log", well}}, s.cfg.Checks...)
	for _, c := range checks {
		mux.HandleFunc("GET /healthz/"+c.Name, func(w http.ResponseWriter, _ *http.Request) {
			if err := c.Check(); err != nil {
				http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
				return
			}
			_, _ = fmt.Fprint(w, "ok") // the reader may be gone, here as below
		})
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		_, verbose := r.URL.Query()["verbose"]
		text, reasons, failed := run(checks, r.URL.Query()["exclude"])
		if len(failed) > 0 {
			s.cfg.Log.V(2).Info(fmt.Sprintf("%s check failed: healthz\n%s", strings.Join(failed, ","), reasons))
			http.Error(w, text+"healthz check failed", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !verbose {
			text = "ok"
		} else {
			text += "healthz check passed\n"
		}
		_, _ = fmt.Fprint(w, text)
	})
}

// run does the checks that are not excluded. The text is for whoever asks, and keeps the reasons back; reasons has a line for
// each check that failed, and names their names.
func run(checks []Check, exclude []string) (text, reasons string, names []string) {
	known := map[string]bool{}
	for _, c := range checks {
		known[c.Name] = true
		if slices.Contains(exclude, c.Name) {
			text += fmt.Sprintf("[+]%s excluded: ok\n", c.Name)
		} else if err := c.Check(); err != nil {
			text += fmt.Sprintf("[-]%s failed: reason withheld\n", c.Name)
			reasons += fmt.Sprintf("[-]%s failed: %v\n", c.Name, err)
			names = append(names, c.Name)
		} else {
			text += fmt.Sprintf("[+]%s ok\n", c.Name)
		}
	}
	var unknown []string
	for _, name := range slices.Sorted(slices.Values(exclude)) {
		if !known[name] {
			unknown = append(unknown, strconv.Quote(name))
		}
	}
	if len(unknown) > 0 {
		text += "warn: some health checks cannot be excluded: no matches for " + strings.Join(slices.Compact(unknown), ",") + "\n"
	}
	return text, reasons, names
}
