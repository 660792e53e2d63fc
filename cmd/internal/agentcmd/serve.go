package agentcmd

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// serve serves the metrics and documents until ctx ends.
func (s *service) serve(ctx context.Context) error {
	if s.opts.listen == "" {
		return nil
	}
	lis, err := net.Listen("tcp", s.opts.listen)
	if err != nil {
		return cli.Usage("--listen: "+err.Error(), "name another address, or --listen '' for none")
	}
	server := &http.Server{
		Handler: s.handler(), ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	go func() {
		<-ctx.Done()
		_ = server.Close() // nothing is to be written any more
	}()
	go func() { _ = server.Serve(lis) }() // ends with Close
	return nil
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.alive() {
			http.Error(w, "the loop stands still", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) {
		if r := s.lastReport(); r != nil {
			answer(w, r)
			return
		}
		http.Error(w, "no observation has ended yet", http.StatusServiceUnavailable)
	})
	mux.HandleFunc("GET /history", func(w http.ResponseWriter, req *http.Request) {
		since := 2 * time.Hour
		if text := req.FormValue("since"); text != "" {
			d, err := time.ParseDuration(text)
			if err != nil || d <= 0 {
				http.Error(w, "since is a duration, such as 2h", http.StatusBadRequest)
				return
			}
			since = d
		}
		if s.recorder == nil {
			http.Error(w, "nothing is recorded", http.StatusNotFound)
			return
		}
		h, err := s.history(req.Context(), time.Now().Add(-since))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		status, problems := h.Status, h.Problems
		h.Header = document.Header(s.env, "agent", checks.KindHistory)
		h.Status, h.Problems = status, problems
		answer(w, h)
	})
	if s.opts.serveCaptures {
		mux.HandleFunc("GET /captures/{$}", s.permitted(s.listCaptures))
		mux.HandleFunc("GET /captures/{name}", s.permitted(s.sendCapture))
	}
	return mux
}

// permitted answers requests for archives from this host, and those with the token. The token's file is read for each,
// since the secret may be created or changed while the agent runs.
func (s *service) permitted(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		from, err := netip.ParseAddrPort(req.RemoteAddr)
		if err == nil && from.Addr().Unmap().IsLoopback() {
			answer(w, req)
			return
		}
		text, _ := cli.ReadFile(s.opts.capturesToken, maxToken) // without a file there is no token
		token := bytes.TrimSpace(text)
		if len(token) == 0 || subtle.ConstantTimeCompare(token, []byte(req.Header.Get(checks.CapturesToken))) != 1 {
			http.Error(w, "archives take the token of --captures-token", http.StatusUnauthorized)
			return
		}
		answer(w, req)
	}
}

// maxToken bounds the file of the token, in bytes.
const maxToken = 4 << 10

// captureTime bounds the transfer of one archive.
const captureTime = 10 * time.Minute

// listCaptures lists the archives in the folder.
func (s *service) listCaptures(w http.ResponseWriter, req *http.Request) {
	captures, err := onDisk(req.Context(), &s.disk, "listing the archives",
		func(context.Context) ([]checks.Capture, error) {
			entries, err := os.ReadDir(filepath.Join(s.opts.dataDir, recorder.CapturesDir))
			if errors.Is(err, fs.ErrNotExist) { // nothing was captured yet
				err = nil
			}
			all := []checks.Capture{}
			for _, e := range entries {
				c, ok := checks.ParseCapture(e.Name())
				info, err := e.Info()
				if ok && err == nil && info.Mode().IsRegular() { // else it was removed meanwhile, or is not the agent's
					c.Bytes = info.Size()
					all = append(all, c)
				}
			}
			return all, err
		})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	list := &checks.CaptureList{Header: document.Header(s.env, "agent", checks.KindCaptureList)}
	list.Status, list.Captures = checks.Healthy, captures
	answer(w, list)
}

// onDisk does work on a disk that may hang, within diskTime. Work that hangs is not begun again.
func onDisk[T any](
	ctx context.Context, g *deadline.Guard, name string, work func(context.Context) (T, error),
) (T, error) {
	ctx, cancel := context.WithTimeout(deadline.WithGuard(ctx, g), diskTime)
	defer cancel()
	return deadline.Run(ctx, name, work)
}

// sendCapture sends an archive of the list. Nothing else has such a name.
func (s *service) sendCapture(w http.ResponseWriter, req *http.Request) {
	c, ok := checks.ParseCapture(req.PathValue("name"))
	if !ok {
		http.Error(w, "there is no such capture", http.StatusNotFound)
		return
	}
	f, err := onDisk(req.Context(), &s.disk, "opening an archive", func(context.Context) (*os.File, error) {
		return bundle.OpenFile(filepath.Join(s.opts.dataDir, recorder.CapturesDir, c.Name))
	})
	if err != nil {
		http.Error(w, "there is no such capture", http.StatusNotFound)
		return
	}
	defer f.Close()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(captureTime)) // the server allows a minute
	w.Header().Set("Content-Type", "application/zstd")
	http.ServeContent(w, req, "", c.At, f)
}

// answer writes a document.
func answer(w http.ResponseWriter, doc any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(doc) // the client may have gone
}
