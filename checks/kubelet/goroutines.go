package kubelet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// goroutinesPath is where the kubelet writes its goroutines (InstallDebuggingHandlers in pkg/kubelet/server/server.go).
const goroutinesPath = "/debug/pprof/goroutine?debug=2"

// Goroutines is a dump of the kubelet's goroutines.
type Goroutines struct {
	URL  string // that answered
	Text []byte
	Hung bool // without a dump: the kubelet accepts the request, or the connection, and does not answer in time
}

// AskGoroutines asks the kubelet for a dump of its goroutines, of which it reads up to limit bytes: on 10250 as
// AskHealth does, and, where that does not let us in and apiServer is set, through the API server of the kubelet's
// kubeconfig as this node. All of the time of ctx may be used. The error names the right that is missing.
func AskGoroutines(
	ctx context.Context, root string, s Settings, given Credentials, apiServer bool, limit int64,
) (g Goroutines, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("asking the kubelet for its goroutines: %w", err)
		}
	}()
	c, err := openServer(ctx, root, s, given)
	if err != nil {
		return g, err
	}
	g, status, err := c.goroutines(ctx, goroutinesPath, limit)
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		err = fmt.Errorf("it refuses the %s (%d)", cmp.Or(c.credential, "request without a credential"), status)
	case http.StatusInternalServerError: // its answer where it cannot ask the API server about us
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return g, fmt.Errorf("it gives none (%d): enableProfilingHandler or enableDebuggingHandlers is false", status)
	default:
		return g, err
	}
	const right = "; the right to get nodes/proxy is needed"
	if !apiServer {
		return g, fmt.Errorf("%w"+right, err)
	}
	api, unknown, errAPI := newAPIClient(root, s)
	if errAPI = errors.Join(errAPI, unknown); errAPI == nil {
		path := "/api/v1/nodes/" + url.PathEscape(s.NodeName) + "/proxy" + goroutinesPath
		g, _, errAPI = api.goroutines(ctx, path, limit)
	}
	if errAPI != nil {
		return Goroutines{}, fmt.Errorf("%w, and the API server's proxy does not help (%w)"+right, err, errAPI)
	}
	return g, nil
}

// goroutines asks one server for the dump.
func (c serverClient) goroutines(ctx context.Context, path string, limit int64) (Goroutines, int, error) {
	defer c.client.CloseIdleConnections()
	c.most = limit
	if end, ok := ctx.Deadline(); ok {
		c.timeout = time.Until(end)
	}
	r, err := c.getOK(ctx, path)
	switch {
	case err != nil:
		return Goroutines{Hung: isTimeout(err)}, r.status, errors.New(reasonUnanswered(err))
	case !bytes.HasPrefix(r.body, []byte("goroutine ")):
		return Goroutines{}, r.status, errors.New("the answer is not a goroutine dump")
	}
	return Goroutines{URL: c.base + path, Text: r.body}, r.status, nil
}
