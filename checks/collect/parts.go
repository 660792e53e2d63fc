package collect

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/capture"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/journal"
)

// The limits of parts.
const (
	timeout = 3 * time.Second // a healthy node needs milliseconds
	mib     = 1 << 20
)

// The parts that may be left out.
const (
	factsID  = "facts"
	stacksID = "stacks"
)

// parts returns all parts, the most valuable first.
func parts() []part {
	return []part{
		{
			id: "report", paths: []string{bundle.ReportName}, limit: 2 * timeout, most: 16 * mib, required: true,
			collect: document(bundle.ReportName, "kdiag node", "  ", func(in *Input) any { return in.Report }),
		},
		{
			id: factsID, paths: []string{bundle.FactsName}, limit: 2 * timeout, most: 128 * mib, required: true,
			collect: document(bundle.FactsName, "kdiag node", "", func(in *Input) any { return in.Facts }),
		},
		{
			id: stacksID, paths: []string{bundle.StacksDir}, needsHost: true, limit: timeout,
			most: 64 * mib, collect: dumps,
		},
		{id: "exited", paths: []string{bundle.ExitedName}, limit: timeout, most: 32 * mib, collect: census},
		{
			id: "relist", paths: []string{"relist.json"}, limit: timeout, most: 16 * mib,
			collect: document("relist.json", "kdiag relist", "  ", func(in *Input) any { return in.Relist }),
		},
		{id: "versions", paths: []string{"versions"}, limit: timeout, most: mib, collect: versions},
		{id: "units", paths: []string{"units"}, needsHost: true, limit: timeout, most: mib, collect: unitStates},
		{
			id: "logs", paths: []string{bundle.LogsDir}, needsHost: true, limit: timeout, most: 8 * mostLog, required: true,
			collect: logs,
		},
		{
			id: "kubelet-config", paths: []string{"config/kubelet.yaml", "config/kubelet.d/"}, needsHost: true,
			limit: timeout, most: 2 * mib, collect: kubeletConfig,
		},
		{
			id: "runtime-config", paths: []string{"config/runtime.toml", "config/runtime.d/"}, needsHost: true,
			limit: timeout, most: 4 * mib, collect: runtimeConfig,
		},
		{
			id: "cni-config", paths: []string{"config/cni/"}, needsHost: true, limit: timeout, most: 2 * mib,
			collect: cniConfig,
		},
		{
			id: "processes", paths: []string{"host/processes.txt"}, needsHost: true, limit: timeout, most: 16 * mib,
			collect: processes,
		},
		{id: "mounts", paths: []string{"host/mounts"}, needsHost: true, limit: timeout, most: 16 * mib, collect: mounts},
		{id: "disks", paths: []string{"host/disks"}, needsHost: true, limit: timeout, most: mib, collect: disks},
		{
			id: "pressure", paths: []string{"host/pressure/"}, needsHost: true, limit: timeout, most: mib,
			collect: procFiles("host/pressure", "pressure/cpu", "pressure/memory", "pressure/io"),
		},
		{
			id: "memory", paths: []string{"host/meminfo", "host/vmstat", "host/loadavg"}, needsHost: true, limit: timeout,
			most: mib, collect: procFiles("host", "meminfo", "vmstat", "loadavg"),
		},
		{
			id: "kubernetes", paths: []string{"kubernetes/node.json", "kubernetes/events.json"},
			needsHost: true, limit: timeout, most: 16 * mib, collect: nodeDocuments,
		},
		{
			id: "log", paths: []string{"kdiag.log"}, limit: timeout, most: 16 * mib,
			collect: func(_ context.Context, in *Input, to *files) error {
				to.add("kdiag.log", "kdiag", redact.Text, in.Log) // which is read when all else has been written
				return nil
			},
		},
	}
}

// document returns a function that adds a document as JSON.
func document(name, source, indent string, of func(*Input) any) func(context.Context, *Input, *files) error {
	return func(_ context.Context, in *Input, to *files) error {
		to.addJSON(name, source, of(in), indent)
		return nil
	}
}

// census adds the document of kdiag exited.
func census(ctx context.Context, in *Input, to *files) error {
	doc, err := in.Census(ctx)
	if err != nil {
		return err
	}
	to.addJSON(bundle.ExitedName, "kdiag exited", doc, "  ")
	return nil
}

// dumps adds the goroutine dumps, and a description of each. If everything hung, there was no time for the kubelet's:
// it is asked now.
func dumps(ctx context.Context, in *Input, to *files) error {
	all, kubeletDump := in.Dumps, func(d capture.Dump) bool { return d.Source.Role == string(host.RoleKubelet) }
	settings := in.Facts.Node.Settings.Value
	i := slices.IndexFunc(all, kubeletDump)
	if settings.PID > 0 && (i < 0 || len(all[i].Text) == 0) {
		all = append(slices.DeleteFunc(slices.Clone(all), kubeletDump), capture.Kubelet(ctx, capture.Input{
			Root: in.Root, Processes: in.Facts.Processes, Kubelet: settings, Credentials: in.Credentials,
			APIServer: in.APIServer,
		}))
	}
	if len(all) == 0 {
		return absence("no process to take a dump of was found")
	}
	sources := map[string]checks.StackSource{}
	put := func(d *capture.Dump, suffix string) {
		name := fmt.Sprintf("%s-%d%s", d.Source.Role, d.Source.PID, suffix)
		sources[name] = d.Source
		if len(d.Text) == 0 {
			to.lacks(bundle.StacksDir+name, errors.New(d.Source.Problem))
			return
		}
		to.add(bundle.StacksDir+name, d.Source.Name, redact.Text, bytes.NewReader(d.Text))
	}
	for i := range all {
		put(&all[i], ".txt")
		if before := all[i].Before; before != nil {
			put(before, bundle.BeforeSuffix)
		}
	}
	to.addJSON(bundle.SourcesName, "kdiag stacks", sources, "  ")
	return nil
}

// nodeDocuments adds the node's object and its events, of the API server.
func nodeDocuments(ctx context.Context, in *Input, to *files) error {
	server := in.Facts.Node.Server
	switch {
	case server.Skipped || !in.APIServer:
		return absence(server.Why())
	case !server.Value.Reachable:
		return errors.New("the API server did not answer: " + server.Missing + server.Value.Err + server.Value.TLSError)
	}
	node, events, errNode, errEvents := kubelet.NodeDocuments(ctx, in.Root, in.Facts.Node.Settings.Value)
	add := func(name string, d kubelet.Document, err error) {
		if err != nil {
			to.lacks(name, err)
			return
		}
		to.add(name, d.URL, redact.JSON, bytes.NewReader(d.JSON))
	}
	add("kubernetes/node.json", node, errNode)
	add("kubernetes/events.json", events, errEvents)
	return nil
}

// Sizes of logs, in bytes before compression.
const (
	mostLog   = 16 * mib // of one log, the newest
	pieceOf   = mib
	mostNames = 32 // logs
)

// logs adds the logs of kernel, kubelet and runtime. If they are too large, the oldest compressed pieces are left out.
func logs(ctx context.Context, in *Input, to *files) error {
	logs := map[string]*tail{}
	err := journal.Export(ctx, in.Root, in.Since, mostLog, func(log, source string, data []byte) {
		if logs[log] == nil && len(logs) < mostNames {
			logs[log] = &tail{source: source}
		}
		if t := logs[log]; t != nil {
			t.write(data)
		}
	})
	for _, name := range []string{journal.ExportKubelet, journal.ExportRuntime, journal.ExportKernel} {
		instead := name == journal.ExportKernel && logs[journal.ExportKmsg] != nil
		if logs[name] == nil && !instead && err == nil {
			to.lacks(bundle.LogsDir+name, errors.New("no records since "+in.Since.UTC().Format(time.RFC3339)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		t := logs[name]
		if t.dropped > 0 {
			why := fmt.Errorf("the oldest %d bytes: the log reached its largest size", t.dropped)
			to.lacks(bundle.LogsDir+name, why)
		}
		to.add(bundle.LogsDir+name, t.source, redact.Text, t.reader())
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	err = errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	if len(logs) > 0 { // a part is there
		to.lacks(bundle.LogsDir, err)
		return nil
	}
	return err
}

// A tail keeps the newest mostLog bytes of a log, compressed in pieces that end with a record.
type tail struct {
	source  string
	pieces  []piece
	now     []byte
	size    int
	dropped int
}

type piece struct {
	packed []byte
	size   int
}

func (t *tail) write(data []byte) {
	t.now = append(t.now, data...)
	if len(t.now) < pieceOf {
		return
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // a level that is known
	_, _ = z.Write(t.now)                           // into memory
	_ = z.Close()
	t.pieces = append(t.pieces, piece{b.Bytes(), len(t.now)})
	t.size += len(t.now)
	t.now = t.now[:0]
	for t.size > mostLog && len(t.pieces) > 1 {
		t.size -= t.pieces[0].size
		t.dropped += t.pieces[0].size
		t.pieces = t.pieces[1:]
	}
}

func (t *tail) reader() io.Reader {
	var all []io.Reader
	for _, p := range t.pieces {
		if z, err := gzip.NewReader(bytes.NewReader(p.packed)); err == nil {
			all = append(all, z)
		}
	}
	return io.MultiReader(append(all, bytes.NewReader(t.now))...)
}
