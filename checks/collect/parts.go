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
	patience = 3 * time.Second // a healthy node needs milliseconds
	mib      = 1 << 20
)

// The parts that may be left out.
const (
	factsID  = "facts"
	stacksID = "stacks"
)

// Parts returns all parts, the most valuable first.
func Parts() []Part {
	const aHost = "a host"
	return []Part{
		{
			ID: "report", Paths: []string{bundle.ReportName}, Limit: 2 * patience, Most: 16 * mib, Vital: true,
			collect: document(bundle.ReportName, "kdiag node", "  ", func(in *Input) any { return in.Report }),
		},
		{
			ID: factsID, Paths: []string{bundle.FactsName}, Limit: 2 * patience, Most: 128 * mib, Vital: true,
			collect: document(bundle.FactsName, "kdiag node", "", func(in *Input) any { return in.Facts }),
		},
		{
			ID: stacksID, Paths: []string{bundle.StacksDir}, Needs: "a runtime or a kubelet", Limit: patience,
			Most: 64 * mib, collect: dumps,
		},
		{ID: "exited", Paths: []string{bundle.ExitedName}, Limit: patience, Most: 32 * mib, collect: census},
		{
			ID: "relist", Paths: []string{"relist.json"}, Limit: patience, Most: 16 * mib,
			collect: document("relist.json", "kdiag relist", "  ", func(in *Input) any { return in.Relist }),
		},
		{ID: "versions", Paths: []string{"versions"}, Limit: patience, Most: mib, collect: versions},
		{ID: "units", Paths: []string{"units"}, Needs: "systemd", Limit: patience, Most: mib, collect: unitStates},
		{
			ID: "logs", Paths: []string{bundle.LogsDir}, Needs: aHost, Limit: patience, Most: 8 * mostLog, Vital: true,
			collect: logs,
		},
		{
			ID: "kubelet-config", Paths: []string{"config/kubelet.yaml", "config/kubelet.d/"}, Needs: "a kubelet",
			Limit: patience, Most: 2 * mib, collect: kubeletConfig,
		},
		{
			ID: "runtime-config", Paths: []string{"config/runtime.toml", "config/runtime.d/"}, Needs: aHost,
			Limit: patience, Most: 4 * mib, collect: runtimeConfig,
		},
		{
			ID: "cni-config", Paths: []string{"config/cni/"}, Needs: aHost, Limit: patience, Most: 2 * mib,
			collect: cniConfig,
		},
		{
			ID: "processes", Paths: []string{"host/processes.txt"}, Needs: aHost, Limit: patience, Most: 16 * mib,
			collect: processes,
		},
		{ID: "mounts", Paths: []string{"host/mounts"}, Needs: aHost, Limit: patience, Most: 16 * mib, collect: mounts},
		{ID: "disks", Paths: []string{"host/disks"}, Needs: aHost, Limit: patience, Most: mib, collect: disks},
		{
			ID: "pressure", Paths: []string{"host/pressure/"}, Needs: aHost, Limit: patience, Most: mib,
			collect: procFiles("host/pressure", "pressure/cpu", "pressure/memory", "pressure/io"),
		},
		{
			ID: "memory", Paths: []string{"host/meminfo", "host/vmstat", "host/loadavg"}, Needs: aHost, Limit: patience,
			Most: mib, collect: procFiles("host", "meminfo", "vmstat", "loadavg"),
		},
		{
			ID: "kubernetes", Paths: []string{"kubernetes/node.json", "kubernetes/events.json"},
			Needs: "the API server", Limit: patience, Most: 16 * mib, collect: nodeDocuments,
		},
		{
			ID: "log", Paths: []string{"kdiag.log"}, Limit: patience, Most: 16 * mib,
			collect: func(_ context.Context, in *Input, to *files) error {
				to.add("kdiag.log", "kdiag", redact.Text, in.Log) // which is read when all else has been written
				return nil
			},
		},
	}
}

// document adds a part of the input as JSON.
func document(name, source, indent string, of func(*Input) any) func(context.Context, *Input, *files) error {
	return func(_ context.Context, in *Input, to *files) error {
		to.addJSON(name, source, of(in), indent)
		return nil
	}
}

// census adds that of kdiag exited.
func census(ctx context.Context, in *Input, to *files) error {
	doc, err := in.Census(ctx)
	if err != nil {
		return err
	}
	to.addJSON(bundle.ExitedName, "kdiag exited", doc, "  ")
	return nil
}

// dumps adds the dumps as the processes wrote them, and what is known of each. Where everything hangs there was no
// time to ask the kubelet for its own: it is asked now.
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

// nodeDocuments adds what the API server has of the node.
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

// What is kept of logs, in bytes before compression.
const (
	mostLog   = 16 * mib // of one log, the newest
	pieceOf   = mib
	mostNames = 32 // logs
)

// logs adds the logs of kernel, kubelet and runtime. They are kept as compressed pieces: where there is too much, the
// oldest pieces are left out.
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
