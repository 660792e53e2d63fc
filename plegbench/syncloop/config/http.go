package config

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// httpTimeout bounds one request for manifests (NewSourceURL in pkg/kubelet/config/http.go upstream).
const httpTimeout = 10 * time.Second

// HTTPConfig is what the source at a URL needs.
type HTTPConfig struct {
	URL      string
	Header   http.Header // of each request
	NodeName string
	Interval time.Duration // between the end of a request and the next: httpCheckFrequency
	Log      logr.Logger
}

// HTTP is the source at a URL, which answers with a pod or a list of pods.
type HTTP struct {
	cfg      HTTPConfig
	client   *http.Client
	last     []byte // document of the last answer, good or bad
	failures int    // in a row
}

// NewHTTP returns a source that has asked nothing yet.
func NewHTTP(cfg HTTPConfig) *HTTP {
	return &HTTP{cfg: cfg, client: &http.Client{Timeout: httpTimeout}}
}

// Name is the source's name.
func (h *HTTP) Name() string { return pod.HTTPSource }

// Run asks at once and then at each interval, and sends all pods whenever the answer changed. It ends with ctx, whose
// error it returns. After four failures in a row it logs them at a higher verbosity only.
func (h *HTTP) Run(ctx context.Context, send func([]*v1.Pod)) error {
	h.cfg.Log.V(1).Info("Watching URL", "URL", h.cfg.URL)
	for {
		switch err := h.fetch(ctx, send); {
		case err == nil && h.failures > 0:
			h.cfg.Log.Info("Successfully read pods from URL")
			h.failures = 0
		case err != nil && h.failures < 3:
			h.cfg.Log.Info("Failed to read pods from URL", "err", err)
			h.failures++
		case err != nil && h.failures == 3:
			h.cfg.Log.Info("Failed to read pods from URL. Dropping verbosity of this message to V(4)", "err", err)
			h.failures++
		case err != nil:
			h.cfg.Log.V(4).Info("Failed to read pods from URL", "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(h.cfg.Interval):
		}
	}
}

// fetch asks once. A failure leaves the pods as they are, but for an answer without a single byte, which means no pods.
func (h *HTTP) fetch(ctx context.Context, send func([]*v1.Pod)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.cfg.URL, nil)
	if err != nil {
		return err
	}
	if h.cfg.Header != nil {
		req.Header = h.cfg.Header.Clone()
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // the document has been read by then
	data, err := readAtMost(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", h.cfg.URL, err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", h.cfg.URL, resp.Status)
	case len(data) == 0:
		send(nil)
		return fmt.Errorf("zero-length data received from %s", h.cfg.URL)
	case bytes.Equal(data, h.last):
		// Upstream skips what it has seen even if that was bad, or if an empty answer has taken the pods away since.
		return nil
	}
	h.last = data
	pods, err := parse(data, pod.HTTPSource, h.cfg.URL, h.cfg.NodeName)
	if err != nil {
		return err
	}
	send(pods)
	return nil
}
