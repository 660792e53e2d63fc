package fleet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

const (
	logReaders = 4         // nodes at a time
	logWindow  = time.Hour // how far back records count
	logLines   = 20_000    // the last of a node; the kubelet gives 100,000 at most
	maxLog     = 32 << 20  // bytes of a node

	logTime = 35 * time.Second // one node
	// logCut is when a log has probably no end: the kubelet ends journalctl after 30 s
	// (pkg/kubelet/kubelet_server_journal.go) and says nothing.
	logCut = 29 * time.Second
	// firstByte is how long a node may take to begin its answer, and silentByte a node whose kubelet has stopped to post
	// its status and to renew its lease.
	firstByte, silentByte = 15 * time.Second, 5 * time.Second
	// westmost is how far a node's local time may be behind UTC. The kubelet writes sinceTime as it is, without its zone,
	// and journalctl takes it for local time.
	westmost = 12 * time.Hour
)

// The reasons for which a node's log is not read.
var (
	errQueryOff = errors.New("the kubelet answers no log queries: set enableSystemLogHandler and enableSystemLogQuery " +
		"to true in its configuration (Kubernetes 1.30 to 1.35: also the feature gate NodeLogQuery)")
	errNoProxy = errors.New("forbidden: it takes the right to get nodes/proxy (docs/fleet.md)")
	errNoUnit  = errors.New("the kubelet is no unit of the node's journal, which is all that can be searched by time")
	errQuiet   = errors.New("there is no record in the journal of the last " + units.Duration(logWindow+westmost))
	errSlow    = errors.New("it was cut: the kubelet ends a query after 30s")
	errNoReply = errors.New("no answer in time")
	errNoTime  = errors.New("the time was up: give more with --timeout, or fewer nodes with -l")
)

// ReadLogs reads what the kubelets and runtimes of a snapshot's nodes have logged of late, through the API server and
// the kubelets (Node Log Query), and judges it as kdiag journal does. A few nodes are read at a time, those that are
// not ready first and those that are silent last; each log is judged while it arrives, and not kept. Nodes that could
// not be read have a problem in their Log, and the snapshot has these by reason. progress is called with the number of
// nodes that were read.
func (c *Cluster) ReadLogs(ctx context.Context, s *Snapshot, progress func(done int)) {
	nodes := make([]*Node, len(s.Nodes))
	for i := range s.Nodes {
		nodes[i] = &s.Nodes[i]
	}
	silent := func(n *Node) bool {
		return n.Condition(v1.NodeReady).Status == v1.ConditionUnknown && s.At.Sub(n.Renewed) > leaseAlive
	}
	rank := func(n *Node) int {
		switch {
		case silent(n):
			return 2
		case n.Condition(v1.NodeReady).Status == v1.ConditionTrue:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(nodes, func(a, b *Node) int { return rank(a) - rank(b) })
	done, start := 0, time.Now()
	var mu sync.Mutex
	var readers errgroup.Group
	readers.SetLimit(logReaders)
	for _, n := range nodes {
		readers.Go(func() error {
			wait := firstByte
			if silent(n) {
				wait = silentByte
			}
			n.Log = c.log(ctx, n, s.At, wait)
			mu.Lock()
			defer mu.Unlock()
			done++
			progress(done)
			return nil
		})
	}
	_ = readers.Wait()
	s.Cost = c.meter.cost(s.Cost.Seconds + time.Since(start).Seconds())
	var problems []string
	unread := map[string][]string{} // nodes by problem
	for _, n := range s.Nodes {
		if n.Log.Problem != "" {
			unread[n.Log.Problem] = append(unread[n.Log.Problem], n.Name)
		}
	}
	for _, why := range slices.SortedFunc(maps.Keys(unread), func(x, y string) int {
		return cmp.Or(len(unread[y])-len(unread[x]), cmp.Compare(x, y))
	}) {
		problems = append(problems, "log of "+units.Count(len(unread[why]), "node")+" not read ("+some(unread[why])+
			"): "+why)
	}
	s.Problems = append(problems, s.Problems...)
}

// log reads and judges the log of a node.
func (c *Cluster) log(outer context.Context, n *Node, at time.Time, wait time.Duration) *checks.FleetLog {
	ctx, cancel := context.WithTimeout(outer, logTime)
	defer cancel()
	var r *journal.Report
	var err error
	for _, back := range []time.Duration{logWindow, logWindow + westmost} {
		r, err = c.query(ctx, n, at, back, wait)
		if err != nil || r.From != nil {
			break
		}
		err = errQuiet // so far
	}
	if outer.Err() != nil {
		err = errNoTime
	}
	log := &checks.FleetLog{Status: checks.Unknown}
	if r != nil {
		log.Lines, log.Bytes, log.From, log.To = r.Lines, r.Bytes, r.From, r.To
	}
	if err != nil {
		log.Problem = err.Error()
		return log
	}
	judge.Journal(r)
	log.Status, log.Verdict = checks.Verdict(r.Status), r.Verdict
	if e := r.Headline(); e != nil {
		log.Ongoing, log.Cause = e == r.Failing || !e.Recovered, causes.PLEGUnhealthy
		if len(e.Causes) > 0 {
			log.Cause, log.Summary = e.Causes[0].Code, e.Causes[0].Summary
		}
	} else if len(r.Findings) > 0 {
		f := r.Findings[0]
		log.Cause, log.Summary, log.Ongoing = f.Cause, f.Summary, f.Ongoing
	}
	return log
}

// query asks a node's kubelet for the records since so long ago, and reads them.
func (c *Cluster) query(ctx context.Context, n *Node, at time.Time, back, wait time.Duration) (*journal.Report, error) {
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(wait, func() { cancel(errNoReply) })
	r := c.core.Get().MaxRetries(0).AbsPath(logPath(n.Name)).SetHeader("Accept", "*/*").
		Param("sinceTime", at.Add(-back).UTC().Format(time.RFC3339)).Param("tailLines", strconv.Itoa(logLines))
	kubelet, runtime := logUnits(n)
	for _, unit := range slices.Concat(kubelet, runtime) {
		r.Param("query", unit)
	}
	body, err := r.Stream(ctx)
	if late.Stop(); err != nil {
		return nil, unanswered(cmp.Or(context.Cause(ctx), err))
	}
	defer body.Close()
	in := &logBody{in: body, left: maxLog}
	report, err := journal.Read(ctx, journal.Options{
		Inputs: []journal.Input{{Kind: journal.Stream, Path: n.Name, Reader: in}},
		Since:  at.Add(-logWindow), Now: func() time.Time { return at }, Local: time.UTC, // as of journalctl --utc
	})
	switch empty := errors.Is(err, journal.ErrEmpty) || errors.Is(err, journal.ErrNotLog); {
	case ctx.Err() != nil: // first, for a read that was abandoned may still write to in
		return report, unanswered(context.Cause(ctx))
	case in.listing():
		return nil, errQueryOff
	case in.lacks(kubelet):
		return nil, errNoUnit
	case err != nil && !empty:
		return report, err
	case in.left <= 0:
		return report, fmt.Errorf("it was cut: it has more than %s in an hour", units.Size(maxLog))
	case time.Since(start) > logCut:
		return report, errSlow
	}
	return report, nil
}

// logPath is the path of a kubelet's logs on the API server.
func logPath(node string) string { return "/api/v1/nodes/" + node + "/proxy/logs/" }

// logUnits returns the units whose logs are asked for. A node has only one of the kubelet's units.
func logUnits(n *Node) (kubelet, runtime []string) {
	for _, d := range []struct {
		version string // a part of the kubelet's
		units   []string
	}{
		{"+k3s", []string{"k3s", "k3s-agent"}},
		{"+rke2", []string{"rke2-server", "rke2-agent"}},
		{"+k0s", []string{"k0sworker", "k0scontroller"}},
	} {
		if strings.Contains(n.Info.KubeletVersion, d.version) {
			return d.units, nil // the runtime is a child, and logs into a file
		}
	}
	kind, _, _ := strings.Cut(n.Info.ContainerRuntimeVersion, "://")
	return []string{"kubelet"}, map[string][]string{
		"containerd": {"containerd"}, "cri-o": {"crio"}, "docker": {"docker", "cri-docker"},
	}[kind]
}

// unanswered explains why a kubelet's log could not be asked for.
func unanswered(err error) error {
	own, byKubelet := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errNoReply):
		return errNoReply
	case apierrors.IsForbidden(err) && !byKubelet:
		return errNoProxy
	case errors.As(err, &status) && slices.Contains([]int32{http.StatusNotFound, http.StatusMethodNotAllowed},
		status.Status().Code) && byKubelet:
		return errQueryOff
	case apierrors.IsServiceUnavailable(err) && !byKubelet: // error trying to reach service: dial tcp ADDRESS: WHY
		why := err.Error()
		return errors.New("the API server does not reach the kubelet: " +
			journal.Clean(why[strings.LastIndex(": "+why, ": "):], 100))
	case byKubelet:
		return errors.New("the kubelet answers: " + journal.Clean(own.Message, 200))
	}
	return errors.New(journal.Clean(err.Error(), 200))
}

// A logBody is an answer of a kubelet while it is read: at most so many bytes of it. It keeps how it begins and ends.
type logBody struct {
	in         io.Reader
	left       int64
	head, tail []byte
}

// How many bytes are kept.
const (
	headSize = 64
	tailSize = 512
)

// Read reads from the answer.
func (l *logBody) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, io.EOF
	}
	n, err := l.in.Read(b[:min(int64(len(b)), l.left)])
	l.left -= int64(n)
	l.head = append(l.head, b[:min(n, headSize-len(l.head))]...)
	l.tail = append(l.tail, b[max(0, n-tailSize):n]...)
	l.tail = slices.Delete(l.tail, 0, max(0, len(l.tail)-tailSize))
	return n, err
}

// listing reports whether the answer is the page of a folder, which a kubelet without log queries sends for any query:
// that of net/http's FileServer, of Go before 1.23 without a doctype.
func (l *logBody) listing() bool {
	head := bytes.ToLower(l.head)
	return bytes.HasPrefix(head, []byte("<!doctype html>")) || bytes.HasPrefix(head, []byte("<pre>"))
}

// lacks reports whether the answer says that none of some units is in the journal.
func (l *logBody) lacks(units []string) bool {
	_, names, _ := bytes.Cut(l.tail, []byte("query resolved to log files for ["))
	names, _, _ = bytes.Cut(names, []byte("]"))
	missing := strings.Fields(string(names))
	return !slices.ContainsFunc(units, func(unit string) bool { return !slices.Contains(missing, unit) })
}
